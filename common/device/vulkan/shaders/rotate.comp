R"glsl(
// Rotary positions of a row's heads; with PUTS these are keys, which go to their pages. Lanes have pairs
// of channels, (i, i + TURNED), and the channels behind all pairs, one each: a workgroup has those of a row, or
// where norms come first, of one head.
layout(set = 0, binding = 1) readonly buffer X { float x[]; };
#ifndef PUTS
layout(set = 0, binding = 2) writeonly buffer Result { float result[]; };
#endif
layout(set = 0, binding = 3) readonly buffer Cos { float cosines[]; };
layout(set = 0, binding = 4) readonly buffer Sin { float sines[]; };
#ifdef NORMED
layout(set = 0, binding = 5) readonly buffer Weight { uint weights[]; };
float weight_at(uint d) {
  if (W_TYPE == 0) return uintBitsToFloat(weights[d]);
  if (W_TYPE == 1) return unpackHalf2x16(weights[d / 2])[d & 1u];
  return uintBitsToFloat(weights[d / 2] >> 16 * (d & 1u) << 16);
}
shared float squares[ROW_CHAINS];
float scale_of(uint from, uint lane) {
  for (uint chain = lane; chain < ROW_CHAINS; chain += WORKGROUP) {
    float sum = 0.0;
    for (uint d = chain; d < D; d += ROW_CHAINS) sum = sum + x[from + d] * x[from + d];
    squares[chain] = sum;
  }
  barrier();
  for (uint half_way = ROW_CHAINS / 2; half_way > 0; half_way /= 2) {
    for (uint chain = lane; chain < half_way; chain += WORKGROUP) {
      squares[chain] = squares[chain] + squares[chain + half_way];
    }
    barrier();
  }
  return rsqrt_f(squares[0] * SCALE + EPS);
}
#define NORMED_X(d) (x[from + (d)] * scale * (weight_at(d) + PLUS))
#else
#define NORMED_X(d) x[from + (d)]
#endif

void main() {
  const uint r = gl_WorkGroupID.y, lane = gl_LocalInvocationIndex;
  if (!has_row(r)) return;
#ifdef NORMED
  const uint head = gl_WorkGroupID.x, pairs = D - TURNED;
  const uint from = r * Q_STRIDE + Q_FIRST + head * D;
  const float scale = scale_of(from, lane);
#else
  const uint pairs = HEADS * (D - TURNED);
#endif
  const uint table = symbol(POSITIONS, piece.row_base + r) * TABLE_STRIDE;
#ifdef PUTS
  prepare_put(0, piece.row_base + r);
#define TO(d, value) put_key(0, head * D + (d), value)
#else
#define TO(d, value) result[(r * HEADS + head) * D + (d)] = value
#endif
  for (uint pair = lane; pair < pairs; pair += WORKGROUP) {
    const uint i = pair % (D - TURNED);
#ifndef NORMED
    const uint head = pair / (D - TURNED), from = r * Q_STRIDE + Q_FIRST + head * D;
#endif
    if (i >= TURNED) {
      TO(i + TURNED, NORMED_X(i + TURNED));
      continue;
    }
    const float a = NORMED_X(i), b = NORMED_X(i + TURNED);
    const float c = cosines[table + i], s = sines[table + i];
    TO(i, a * c - b * s);
    TO(i + TURNED, b * c + a * s);
  }
}
)glsl"
