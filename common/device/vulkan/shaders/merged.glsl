R"glsl(
layout(set = 0, binding = PARTIAL_BINDING) restrict readonly buffer Partial { float partial[]; };
// Attention's result is its splits joined in order: each weighs e^(its largest score - the largest
// of all).
const uint SPLIT = D + 2;  // floats that a split left: sums of values, largest score, sum of weights
shared float split_weight[HEADS * SPLITS];
shared float head_total[HEADS];
uint used_splits(uint r) { return symbol(POSITIONS, piece.row_base + r) / KEYS + 1; }

// By all lanes, before merged(). What a split past the used ones left is read and not used, so that
// no read waits for another.
void weigh_splits(uint r, uint lane) {
  const uint used = used_splits(r);
  for (uint head = lane; head < HEADS; head += WORKGROUP) {
    const uint base = (r * HEADS + head) * SPLITS * SPLIT + D;
    float score[SPLITS], weights[SPLITS];
    [[unroll]] for (uint s = 0; s < SPLITS; ++s) {
      score[s] = partial[base + s * SPLIT];
      weights[s] = partial[base + s * SPLIT + 1];
    }
    float largest = score[0];
    [[unroll]] for (uint s = 1; s < SPLITS; ++s) {
      if (s < used) largest = max(largest, score[s]);
    }
    float total = 0.0;
    [[unroll]] for (uint s = 0; s < SPLITS; ++s) {
      if (s < used) {
        float scale = exp_f(score[s] - largest);
        split_weight[head * SPLITS + s] = scale;
        total = fma(scale, weights[s], total);
      }
    }
    head_total[head] = total;
  }
  barrier();
}

// Element c of row r.
float merged(uint r, uint c, uint used) {
  const uint head = c / D;
  const uint base = (r * HEADS + head) * SPLITS * SPLIT + c % D;
  float value[SPLITS];
  [[unroll]] for (uint s = 0; s < SPLITS; ++s) {
    if (s < used) value[s] = partial[base + s * SPLIT];
  }
  float sum = 0.0;
  [[unroll]] for (uint s = 0; s < SPLITS; ++s) {
    if (s < used) sum = fma(split_weight[head * SPLITS + s], value[s], sum);
  }
  float y = sum / head_total[head];
  return y;
}
)glsl"
