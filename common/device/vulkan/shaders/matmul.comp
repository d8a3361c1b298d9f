R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k], then the tape of the step (finish()).
// LANES lanes share an output. K is cut into chunks of 8; lane t sums chunks t, t + LANES, ... in
// order by fma into one accumulator, and the lanes are added in pairs: neighbours, then pairs of
// pairs. That order depends on LANES alone: BLOCK (rows a workgroup takes), COLUMNS_PER_LANE and
// UNROLL (chunks in flight) do not change it.
layout(constant_id = 5) const uint K = 8;
layout(constant_id = 6) const uint LANES = 8;
layout(constant_id = 7) const uint BLOCK = 1;
layout(constant_id = 8) const uint COLUMNS_PER_LANE = 1;
layout(constant_id = 9) const uint UNROLL = 1;
layout(constant_id = 10) const uint W_TYPE = 0;    // 0: F32, 1: F16, 2: BF16
layout(constant_id = 11) const uint EXACT_ROWS = 0;  // rows when the recording fixes them, else 0
layout(set = 0, binding = 1) readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 1) readonly buffer X4 { vec4 x4[]; };
layout(set = 0, binding = 2) readonly buffer W { uvec4 w[]; };

const uint CHUNKS = (K + 7) / 8;
const uint ROW_VECTORS = W_TYPE == 0 ? CHUNKS * 2 : CHUNKS;  // uvec4 in a row of w
const uint PER_CHUNK = W_TYPE == 0 ? 2 : 1;
const uint GROUPS = WORKGROUP / LANES;
const uint SUMS = BLOCK * COLUMNS_PER_LANE;
shared float partial[LANES > SUBGROUP ? SUMS * WORKGROUP : 1];

vec4 half4(uvec2 bits) { return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y)); }
vec4 brain4(uvec2 bits) {
  return uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16, bits.y & 0xffff0000u));
}
float dot4(vec4 a, vec4 b, float sum) {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
vec4 load_x(uint row, uint k) {
  if (K % 4 == 0) {
    if (K % 8 == 0 || k < K) return x4[row * (K / 4) + k / 4];
    return vec4(0.0);
  }
  vec4 v = vec4(0.0);
  uint at = row * K + k;
  if (k < K) v.x = x1[at];
  if (k + 1 < K) v.y = x1[at + 1];
  if (k + 2 < K) v.z = x1[at + 2];
  if (k + 3 < K) v.w = x1[at + 3];
  return v;
}

void main() {
  const uint lane = lane_index();
  const uint t = lane % LANES;
  const uint rows = EXACT_ROWS != 0 ? EXACT_ROWS : row_count();
  const uint row0 = gl_WorkGroupID.y * BLOCK;
  const uint column0 = (gl_WorkGroupID.x * GROUPS + lane / LANES) * COLUMNS_PER_LANE;
  if (row0 >= rows) return;

  uint row[BLOCK], w_row[COLUMNS_PER_LANE];
  float sums[SUMS];
  [[unroll]] for (uint n = 0; n < BLOCK; ++n) row[n] = min(row0 + n, rows - 1);
  [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) {
    w_row[m] = min(column0 + m, piece.column_piece - 1) * ROW_VECTORS;
  }
  [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0.0;

  for (uint c0 = t; c0 < CHUNKS; c0 += LANES * UNROLL) {
    uvec4 v[UNROLL * COLUMNS_PER_LANE * PER_CHUNK];
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
      const uint c = min(c0 + u * LANES, CHUNKS - 1);
      [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) {
        [[unroll]] for (uint p = 0; p < PER_CHUNK; ++p) {
          v[(u * COLUMNS_PER_LANE + m) * PER_CHUNK + p] = w[w_row[m] + c * PER_CHUNK + p];
        }
      }
    }
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
      const uint c = c0 + u * LANES;
      if (c >= CHUNKS) continue;
      vec4 low[COLUMNS_PER_LANE], high[COLUMNS_PER_LANE];
      [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) {
        const uint at = (u * COLUMNS_PER_LANE + m) * PER_CHUNK;
        if (W_TYPE == 0) {
          low[m] = uintBitsToFloat(v[at]);
          high[m] = uintBitsToFloat(v[at + PER_CHUNK - 1]);
        } else if (W_TYPE == 1) {
          low[m] = half4(v[at].xy);
          high[m] = half4(v[at].zw);
        } else {
          low[m] = brain4(v[at].xy);
          high[m] = brain4(v[at].zw);
        }
      }
      [[unroll]] for (uint n = 0; n < BLOCK; ++n) {
        const vec4 a = load_x(row[n], c * 8), b = load_x(row[n], c * 8 + 4);
        [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) {
          const uint i = n * COLUMNS_PER_LANE + m;
          sums[i] = dot4(high[m], b, dot4(low[m], a, sums[i]));
        }
      }
    }
  }

  for (uint offset = 1; offset < LANES; offset <<= 1) {
    if (offset < SUBGROUP) {
      [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = sums[i] + lane_xor(sums[i], offset);
    } else {
      barrier();
      [[unroll]] for (uint i = 0; i < SUMS; ++i) partial[i * WORKGROUP + lane] = sums[i];
      barrier();
      [[unroll]] for (uint i = 0; i < SUMS; ++i) {
        sums[i] = sums[i] + partial[i * WORKGROUP + (lane ^ offset)];
      }
    }
  }

  // Every lane has every sum; each finishes its share.
  for (uint first = 0; first < SUMS; first += LANES) {
    float product = 0.0;
    [[unroll]] for (uint i = 0; i < SUMS; ++i) {
      if (i == first + t) product = sums[i];
    }
    const uint r = row0 + (first + t) / COLUMNS_PER_LANE;
    const uint column = column0 + (first + t) % COLUMNS_PER_LANE;
    if (first + t < SUMS && r < rows && column < piece.column_piece) {
      finish(r, piece.column_base + column, product);
    }
  }
}
)glsl"
