R"glsl(
layout(set = 0, binding = PARTIAL_BINDING) restrict readonly buffer Partial { float partial[]; };
layout(set = 0, binding = PARTIAL_BINDING) restrict readonly buffer Partial4 { vec4 partial4[]; };
// Attention's result is its splits joined in order: each weighs e^(its largest score - the largest
// of all). What a lane needs is on its way before it computes; splits that the row does not see are
// not read. A lane finds the weight of a head's split, so that there is little code.
shared float split_largest[HEADS * SPLITS];
shared float split_total[HEADS * SPLITS];
shared float split_weight[HEADS * SPLITS];

bool is_used(uint split, uvec2 used) { return split >= used.x && split < used.y; }

void weigh_splits(uint r, uint lane, uvec2 used) {
  for (uint i = lane; i < HEADS * SPLITS; i += WORKGROUP) {
    if (!is_used(i % SPLITS, used)) continue;
    const uint at = (r * HEADS * SPLITS + i) * SPLIT + D;
    vec2 both;
    if (D % 4 == 0) both = partial4[at / 4].xy;
    else both = vec2(partial[at], partial[at + 1]);
    split_largest[i] = both.x;
    split_total[i] = both.y;
  }
  barrier();
  for (uint i = lane; i < HEADS * SPLITS; i += WORKGROUP) {
    const uint first = i / SPLITS * SPLITS;
    float largest = split_largest[first + used.x];
    for (uint s = used.x + 1; s < used.y; ++s) largest = max(largest, split_largest[first + s]);
    if (is_used(i - first, used)) split_weight[i] = exp_f(split_largest[i] - largest);
  }
}

// Elements 4 * four .. of split s; past the last, the last.
vec4 split_value(uint r, uint four, uint s) {
  const uint first = (r * HEADS * SPLITS + s) * SPLIT, c = four * 4;
  if (D % 4 == 0) return partial4[(first + c / D * SPLITS * SPLIT + c % D) / 4];
  vec4 value;
  [[unroll]] for (uint j = 0; j < 4; ++j) {
    const uint at = min(c + j, C - 1);
    value[j] = partial[first + at / D * SPLITS * SPLIT + at % D];
  }
  return value;
}

// MERGE_ROW(r, lane, used, TAKE), with seen_splits() of the row: TAKE(four, y) for each four elements of row r.
const uint FOURS = (C + 3) / 4;
const uint MERGED = (FOURS + WORKGROUP - 1) / WORKGROUP;  // fours of a lane
const bool AT_ONCE = MERGED * SPLITS <= 32;               // they fit into registers
const uint HELD = AT_ONCE ? MERGED : 1;
#define MERGE_ROW(r, lane, used, TAKE) \
  vec4 value[HELD * SPLITS]; \
  if (AT_ONCE) { \
    [[unroll]] for (uint i = 0; i < HELD; ++i) { \
      const uint four = min(lane + i * WORKGROUP, FOURS - 1); \
      [[unroll]] for (uint s = 0; s < SPLITS; ++s) { \
        if (is_used(s, used)) value[i * SPLITS + s] = split_value(r, four, s); \
      } \
    } \
  } \
  weigh_splits(r, lane, used); \
  barrier(); \
  [[unroll]] for (uint i = 0; i < HELD; ++i) { \
    for (uint four = lane + i * WORKGROUP; four < FOURS; four += HELD * WORKGROUP) { \
      vec4 y = vec4(0.0), total = vec4(0.0); \
      [[unroll]] for (uint s = 0; s < SPLITS; ++s) { \
        if (is_used(s, used)) { \
          const vec4 v = AT_ONCE ? value[i * SPLITS + s] : split_value(r, four, s); \
          [[unroll]] for (uint j = 0; j < 4; ++j) { \
            const uint head = (D % 4 == 0 ? four * 4 : min(four * 4 + j, C - 1)) / D; \
            const float scale = split_weight[head * SPLITS + s]; \
            total[j] = fma(scale, split_total[head * SPLITS + s], total[j]); \
            y[j] = fma(scale, v[j], y[j]); \
          } \
        } \
      } \
      y *= 1.0 / total; \
      TAKE(four, y) \
    } \
  }
)glsl"
