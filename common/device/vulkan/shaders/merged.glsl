R"glsl(
layout(set = 0, binding = PARTIAL_BINDING) restrict readonly buffer Partial { float partial[]; };
layout(set = 0, binding = PARTIAL_BINDING) restrict readonly buffer Partial4 { vec4 partial4[]; };
// Attention's result is its splits joined in order: each weighs e^(its largest score - the largest
// of all). A lane finds the weights of its own head's splits, and has some of them at once. Splits
// that the row does not see are not read.
const uint AT_ONCE = SPLITS < 8 ? SPLITS : 8;

// Element d of split s of a head of row r: a channel, or at D its largest score and at D + 1 its sum
// of weights.
uint split_at(uint r, uint head, uint s, uint d) {
  return COUNT_WORDS + ((r * HEADS + head) * SPLITS + s) * SPLIT + d;
}
// Channels d .. d + 3 of a head, or only the first of them.
vec4 split_value(uint r, uint head, uint s, uint d) {
  const uint at = split_at(r, head, s, d);
  if (D % 4 == 0) return partial4[at / 4];
  return vec4(partial[at]);
}
vec2 split_sums(uint r, uint head, uint s) {
  const uint at = split_at(r, head, s, D);
  if (D % 4 == 0) return partial4[at / 4].xy;
  return vec2(partial[at], partial[at + 1]);
}
vec4 merged(uint r, uint head, uint d, uvec2 used) {
  vec4 values[AT_ONCE];
  vec2 sums[AT_ONCE];
#define LOAD_SPLITS(first) \
  [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) { \
    const uint s = min(first + i, used.y - 1); \
    values[i] = split_value(r, head, s, d); \
    sums[i] = split_sums(r, head, s); \
  }
  LOAD_SPLITS(used.x)
  float largest = sums[0].x;
  [[unroll]] for (uint i = 1; i < AT_ONCE; ++i) largest = max(largest, sums[i].x);
  for (uint first = used.x + AT_ONCE; first < used.y; first += AT_ONCE) {
    [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
      largest = max(largest, split_sums(r, head, min(first + i, used.y - 1)).x);
    }
  }
  vec4 y = vec4(0.0);
  float total = 0.0;
  for (uint first = used.x; first < used.y; first += AT_ONCE) {
    if (first != used.x) {
      LOAD_SPLITS(first)
    }
    [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
      if (first + i < used.y) {
        const float scale = exp_f(sums[i].x - largest);
        total = fma(scale, sums[i].y, total);
        [[unroll]] for (uint j = 0; j < 4; ++j) y[j] = fma(scale, values[i][j], y[j]);
      }
    }
  }
  return y * (1.0 / total);
}
// Elements 4 * four .. of row r of the result; past the last, the last.
vec4 merged_four(uint r, uint four, uvec2 used) {
  if (D % 4 == 0) return merged(r, four * 4 / D, four * 4 % D, used);
  vec4 y;
  for (uint j = 0; j < 4; ++j) {
    const uint c = min(four * 4 + j, C - 1);
    y[j] = merged(r, c / D, c % D, used).x;
  }
  return y;
}

// MERGE_ROW(r, lane, used, TAKE), with seen_splits() of the row: TAKE(four, y) for each four elements of row r.
#define MERGE_ROW(r, lane, used, TAKE) \
  for (uint four = lane; four < (C + 3) / 4; four += WORKGROUP) { \
    const vec4 y = merged_four(r, four, used); \
    TAKE(four, y) \
  }
)glsl"
