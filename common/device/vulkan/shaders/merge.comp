R"glsl(
// Joins the splits of a row in order. One workgroup a row.
layout(constant_id = 5) const uint HEADS = 1;
layout(constant_id = 6) const uint D = 1;
layout(constant_id = 7) const uint SPLITS = 1;
layout(set = 0, binding = 1) readonly buffer Partial { float partial[]; };
layout(set = 0, binding = 2) writeonly buffer Result { float result[]; };

void main() {
  const uint r = gl_WorkGroupID.x;
  if (r >= row_count()) return;
  const uint used = symbol(POSITIONS, piece.row_base + r) / 128 + 1;
  for (uint c = gl_LocalInvocationIndex; c < HEADS * D; c += WORKGROUP) {
    const uint base = (r * HEADS + c / D) * SPLITS * (D + 2);
    float largest = partial[base + D];
    for (uint s = 1; s < used; ++s) largest = max(largest, partial[base + s * (D + 2) + D]);
    float sum = 0.0, total = 0.0;
    for (uint s = 0; s < used; ++s) {
      const uint at = base + s * (D + 2);
      float scale = exp_f(partial[at + D] - largest);
      sum = fma(scale, partial[at + c % D], sum);
      total = fma(scale, partial[at + D + 1], total);
    }
    float y = sum / total;
    result[r * HEADS * D + c] = y;
  }
}
)glsl"
