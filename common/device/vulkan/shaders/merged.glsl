R"glsl(
layout(set = 0, binding = PARTIAL_BINDING) restrict readonly buffer Partial { float partial[]; };
// Attention's result is its splits joined in order: each weighs e^(its largest score - the largest
// of all).
const uint SPLIT = D + 2;  // floats that a split left: sums of values, largest score, sum of weights
shared float split_weight[HEADS * SPLITS];
shared float head_total[HEADS];
uint used_splits(uint r) { return symbol(POSITIONS, piece.row_base + r) / KEYS + 1; }

// By all lanes, before merged().
void weigh_splits(uint r, uint lane) {
  const uint used = used_splits(r);
  for (uint head = lane; head < HEADS; head += WORKGROUP) {
    const uint base = (r * HEADS + head) * SPLITS * SPLIT + D;
    float largest = partial[base];
    for (uint s = 1; s < used; ++s) largest = max(largest, partial[base + s * SPLIT]);
    float total = 0.0;
    for (uint s = 0; s < used; ++s) {
      float scale = exp_f(partial[base + s * SPLIT] - largest);
      split_weight[head * SPLITS + s] = scale;
      total = fma(scale, partial[base + s * SPLIT + 1], total);
    }
    head_total[head] = total;
  }
  barrier();
}

// Element c of row r.
float merged(uint r, uint c) {
  const uint used = used_splits(r), head = c / D;
  const uint base = (r * HEADS + head) * SPLITS * SPLIT + c % D;
  float sum = 0.0;
  for (uint s = 0; s < used; ++s) {
    sum = fma(split_weight[head * SPLITS + s], partial[base + s * SPLIT], sum);
  }
  float y = sum / head_total[head];
  return y;
}
)glsl"
