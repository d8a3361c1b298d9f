R"glsl(
layout(set = 0, binding = PARTIAL_BINDING) restrict readonly buffer Partial { float partial[]; };
// Attention's result is its splits joined in order: each weighs e^(its largest score - the largest
// of all). What a lane needs is on its way before it computes; splits past the used ones are not
// read.
const uint SPLIT = D + 2;  // floats that a split left: sums of values, largest score, sum of weights
shared float split_weight[HEADS * SPLITS];
shared float head_total[HEADS];

void weigh_splits(uint r, uint lane, uint used) {
  for (uint head = lane; head < HEADS; head += WORKGROUP) {
    const uint base = (r * HEADS + head) * SPLITS * SPLIT + D;
    float score[SPLITS], weights[SPLITS];
    [[unroll]] for (uint s = 0; s < SPLITS; ++s) {
      if (s < used) {
        score[s] = partial[base + s * SPLIT];
        weights[s] = partial[base + s * SPLIT + 1];
      }
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
}

// MERGE_ROW(r, lane, TAKE): TAKE(c, y) for each element of row r.
const uint MERGED = (C + WORKGROUP - 1) / WORKGROUP;  // elements of a lane
const bool AT_ONCE = MERGED * SPLITS <= 128;           // they fit into registers
const uint HELD = AT_ONCE ? MERGED : 1;
#define MERGE_ROW(r, lane, TAKE) \
  const uint used = symbol(POSITIONS, piece.row_base + r) / KEYS + 1; \
  float value[HELD * SPLITS]; \
  if (AT_ONCE) { \
    [[unroll]] for (uint i = 0; i < HELD; ++i) { \
      const uint c = min(lane + i * WORKGROUP, C - 1); \
      [[unroll]] for (uint s = 0; s < SPLITS; ++s) { \
        if (s < used) value[i * SPLITS + s] = split_value(r, c, s); \
      } \
    } \
  } \
  weigh_splits(r, lane, used); \
  barrier(); \
  [[unroll]] for (uint i = 0; i < HELD; ++i) { \
    for (uint c = lane + i * WORKGROUP; c < C; c += HELD * WORKGROUP) { \
      const uint head = c / D; \
      float sum = 0.0; \
      [[unroll]] for (uint s = 0; s < SPLITS; ++s) { \
        if (s < used) { \
          const float v = AT_ONCE ? value[i * SPLITS + s] : split_value(r, c, s); \
          sum = fma(split_weight[head * SPLITS + s], v, sum); \
        } \
      } \
      float y = sum / head_total[head]; \
      TAKE(c, y) \
    } \
  }
float split_value(uint r, uint c, uint s) {
  return partial[((r * HEADS + c / D) * SPLITS + s) * SPLIT + c % D];
}
)glsl"
