R"glsl(
layout(set = 0, binding = PARTIAL_BINDING) readonly buffer Partial { float partial[]; };
// Element c of row r of attention's result: the splits joined in order.
float merged(uint r, uint c) {
  const uint used = symbol(POSITIONS, piece.row_base + r) / KEYS + 1;
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
  return y;
}
)glsl"
