R"glsl(
// One head of one row over one split: of the keys of 128 positions at an absolute multiple of 128
// those that the row sees. Leaves the weighted sum of values, the largest score and the sum of weights.
// KEY_LANES lanes share a key, each with 16 bytes of it, so that a subgroup reads whole rows; a group
// of them has OWN keys. Short code for many lanes: instructions are fetched anew in each dispatch,
// which on an H200 takes longer than what they do. Sums over keys are of products in pairs, those
// whose keys differ in the highest bit first, however many lanes there are and however far shuffles
// reach. With RESULT a workgroup takes all splits of a row one after another, as is best for many
// rows, and joins them as merged.glsl does. With GROUPED it takes some, which it joins likewise, and
// leaves what one split does. With JOINED the last workgroup of a row's head joins what all left.
layout(set = 0, binding = 1) readonly buffer Q { float q_rows[]; };
layout(set = 0, binding = 1) readonly buffer Q4 { vec4 q_rows4[]; };
#ifdef RESULT
layout(set = 0, binding = 2) writeonly buffer Result { RESULT result[]; };
shared float kept[SPLITS * SPLIT];
#define KEEP(at, value) kept[split * SPLIT + (at)] = value
#else
#ifdef JOINED
layout(set = 0, binding = 2) coherent buffer Partial { float partial[]; };
layout(set = 0, binding = 2) coherent buffer Counts { uint counts[]; };
layout(set = 0, binding = RESULT_BINDING) writeonly buffer Result { JOINED result[]; };
shared bool is_last;
shared float totals[SPLIT_KEYS];
#else
layout(set = 0, binding = 2) writeonly buffer Partial { float partial[]; };
#endif
uint split_at(uint r, uint head, uint split) {
  return COUNT_WORDS + ((r * HEADS + head) * SPLITS + split) * SPLIT;
}
#endif
#ifdef GROUPED
shared float kept[GROUP_SPLITS * SPLIT];
#define KEEP(at, value) kept[split % GROUP_SPLITS * SPLIT + (at)] = value
#elif !defined(RESULT)
#define KEEP(at, value) partial[out_base + (at)] = value
#endif
const bool IN_BLOCKS = KV_TYPE == 3;
const uint WIDTH = KV_TYPE == 0 ? 4 : IN_BLOCKS ? 16 : 8;  // elements of 16 bytes
const uint HEAD_VECTORS = (D + WIDTH - 1) / WIDTH;
const bool WHOLE = D % WIDTH == 0;
const uint GROUPS = WORKGROUP / KEY_LANES;
const uint OWN = SPLIT_KEYS / GROUPS;        // KEY_LANES at most
const uint COPIES = KEY_LANES / OWN;   // lanes that have a score
const uint REACH = SUBGROUP > KEY_LANES ? SUBGROUP : KEY_LANES;  // lanes whose sums shuffles make
const uint PARTS = WORKGROUP / REACH;
const uint PART = 1 + KEY_LANES * WIDTH;  // floats of a part: its sums of weights and of values
shared float exchange[KEY_LANES > SUBGROUP ? WORKGROUP : 1];
shared float weight[SPLIT_KEYS];
shared float part_sums[PARTS * PART];

// Vector v of the row at `at`: elements [v * WIDTH, ...) of a head, past its end zeros.
#define VECTOR(load, to, at, head, v) \
  { \
    const uint base = IN_BLOCKS ? byte_at(LOCAL(at), kv_head(head) * D) \
                                : LOCAL(at) * KV_WIDTH + kv_head(head) * D; \
    if (WHOLE) { \
      to = load(PIECE(at), base / WIDTH + min(v, HEAD_VECTORS - 1)); \
    } else { \
      to = uvec4(0); \
      [[unroll]] for (uint j = 0; j < WIDTH; ++j) { \
        const uint e = base + v * WIDTH + j; \
        if (v * WIDTH + j < D) { \
          const uint word = load(PIECE(at), e / WIDTH)[KV_TYPE == 0 ? e & 3u : e >> 1 & 3u]; \
          if (KV_TYPE == 0) to[j] = word; \
          else to[j / 2] |= (word >> 16 * (e & 1u) & 0xffffu) << 16 * (j & 1u); \
        } \
      } \
    } \
  }
// The scale of that vector's block.
#define SCALE_OF(load, at, head, v) \
  scale_of_half(load(PIECE(at), scale_at(LOCAL(at), kv_head(head) * D + min(v, HEAD_VECTORS - 1) * WIDTH)))
// Element j of a vector, in blocks less its scale.
float element(uvec4 bits, uint j) {
  if (IN_BLOCKS) return float(int(bits[j / 4] << (24 - j % 4 * 8)) >> 24);
  if (KV_TYPE == 0) return uintBitsToFloat(bits[j]);
  const vec2 both = unpackHalf2x16(bits[j / 2]);
  return (j & 1u) == 0u ? both.x : both.y;
}
// Returns the value of the lane `offset` away, which differs in this bit.
float other_lane(float value, uint lane, uint offset) {
  if (offset < SUBGROUP) return lane_xor(value, offset);
  barrier();
  exchange[lane] = value;
  barrier();
  return exchange[lane ^ offset];
}

// Returns whether the row sees any of the split's keys.
bool attend(uint head, uint split, uint r) {
  const uint row = piece.row_base + r;
  const uint lane = lane_index();
  const uint group = lane / KEY_LANES, vector = lane % KEY_LANES;
  // The low bits that all keys of a group have. Neighbours differ in the highest.
  const uint low = GROUPS == 1 ? 0 : bitfieldReverse(group) >> (32 - findMSB(GROUPS));
  // The pages are looked up while the row's keys are: theirs is the first of three waits.
  const uint table = table_of(row);
  uint pages[OWN];
  [[unroll]] for (uint n = 0; n < OWN; ++n) pages[n] = split_page(table, split, n * GROUPS + low);
  const uvec2 seen_of_row = seen_keys(row);
  const uint seen_first = seen_of_row.x, seen_end = seen_of_row.y;
#ifdef BIASED
  const uint own_place = symbol(POSITIONS, row);
#endif
  if (split * SPLIT_KEYS >= seen_end || (split + 1) * SPLIT_KEYS <= seen_first) return false;
  // The row sees the split's keys [least, keys).
  const uint least = max(seen_first, split * SPLIT_KEYS) - split * SPLIT_KEYS;
  const uint keys = min(seen_end - split * SPLIT_KEYS, SPLIT_KEYS);

  // Keys, values and q are on their way at once. What the row does not see is whatever the pages
  // hold, and not used.
  uvec4 k[OWN], values[OWN];
  float k_scales[OWN], v_scales[OWN];
  float q[WIDTH];
  [[unroll]] for (uint n = 0; n < OWN; ++n) {
    const uint at = place(pages[n], n * GROUPS + low);
    VECTOR(load_k, k[n], at, head, vector)
    if (IN_BLOCKS) k_scales[n] = SCALE_OF(load_k_scale, at, head, vector);
  }
  const uint own_q = r * Q_STRIDE + Q_FIRST + head * D;
  if (D % 4 == 0 && Q_FIRST % 4 == 0 && Q_STRIDE % 4 == 0) {
    [[unroll]] for (uint i = 0; i < WIDTH / 4; ++i) {
      const uint four = vector * (WIDTH / 4) + i;
      const vec4 x = q_rows4[own_q / 4 + min(four, D / 4 - 1)];
      [[unroll]] for (uint j = 0; j < 4; ++j) q[i * 4 + j] = four < D / 4 ? x[j] : 0.0;
    }
  } else {
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) {
      const uint d = vector * WIDTH + j;
      const float x = q_rows[own_q + min(d, D - 1)];
      q[j] = d < D ? x : 0.0;
    }
  }
  [[unroll]] for (uint n = 0; n < OWN; ++n) {
    const uint at = place(pages[n], n * GROUPS + low);
    VECTOR(load_v, values[n], at, head, vector)
    if (IN_BLOCKS) v_scales[n] = SCALE_OF(load_v_scale, at, head, vector);
  }

  float scores[OWN];
  [[unroll]] for (uint n = 0; n < OWN; ++n) {
    scores[n] = 0.0;
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) scores[n] = fma(element(k[n], j), q[j], scores[n]);
    if (IN_BLOCKS) scores[n] = scores[n] * k_scales[n];
  }
  // Each lane gives away half of the sums that it has and keeps the others, until one is left; that
  // one is summed by all that have it. By literal numbers: an array that other loops index is not
  // kept in registers.
#define GIVE(P) \
  if (OWN > P) { \
    const bool upper = (vector & (P * COPIES)) != 0u; \
    [[unroll]] for (uint n = 0; n < P; ++n) { \
      const float low_sum = scores[n], high_sum = scores[OWN > P ? n + P : 0]; \
      const float given = upper ? low_sum : high_sum; \
      scores[n] = (upper ? high_sum : low_sum) + other_lane(given, lane, P * COPIES); \
    } \
  }
  GIVE(64) GIVE(32) GIVE(16) GIVE(8) GIVE(4) GIVE(2) GIVE(1)
  float sum = scores[0];
  [[unroll]] for (uint offset = COPIES / 2; offset > 0; offset >>= 1) {
    sum = sum + other_lane(sum, lane, offset);
  }
  const uint own = vector / COPIES;
  const uint own_key = own * GROUPS + low;
  const bool seen = own_key >= least && own_key < keys;
  const float scaled = (CAP > 0.0 ? CAP * tanh_f(sum * (SCALE / CAP)) : sum * SCALE) +
                       bias_of(head, split * SPLIT_KEYS + own_key, own_place);
  const float score = seen ? scaled : -3.4e38;
  const float largest = largest_of_all(score, lane);
  const float e = seen ? exp_f(score - largest) : 0.0;

  // Other keys have a weight of 0 and any value. No branch: a compiler would move the
  // load into it.
  float weights[OWN], sums[OWN * WIDTH];
  if (KEY_LANES > SUBGROUP) {
    weight[own * GROUPS + group] = e;
    barrier();
  }
  [[unroll]] for (uint n = 0; n < OWN; ++n) {
    weights[n] = KEY_LANES > SUBGROUP ? weight[n * GROUPS + group]
                                      : lane_value(e, group * KEY_LANES + n * COPIES);
    const bool there = n * GROUPS + low >= least && n * GROUPS + low < keys;
    const uvec4 bits = uvec4(there ? values[n].x : 0u, there ? values[n].y : 0u,
                             there ? values[n].z : 0u, there ? values[n].w : 0u);
    const float own_weight = IN_BLOCKS ? weights[n] * (there ? v_scales[n] : 0.0) : weights[n];
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) sums[n * WIDTH + j] = own_weight * element(bits, j);
  }
#define PAIR(P) \
  if (OWN > P) { \
    [[unroll]] for (uint n = 0; n < P; ++n) { \
      const uint other = OWN > P ? n + P : 0; \
      weights[n] = weights[n] + weights[other]; \
      [[unroll]] for (uint j = 0; j < WIDTH; ++j) { \
        sums[n * WIDTH + j] = sums[n * WIDTH + j] + sums[other * WIDTH + j]; \
      } \
    } \
  }
  PAIR(64) PAIR(32) PAIR(16) PAIR(8) PAIR(4) PAIR(2) PAIR(1)
  [[unroll]] for (uint offset = KEY_LANES; offset < SUBGROUP; offset <<= 1) {
    weights[0] = weights[0] + lane_xor(weights[0], offset);
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) sums[j] = sums[j] + lane_xor(sums[j], offset);
  }
  if (lane % REACH < KEY_LANES) {
    const uint part = lane / REACH * PART;
    if (vector == 0) part_sums[part] = weights[0];
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) part_sums[part + 1 + vector * WIDTH + j] = sums[j];
  }
  barrier();
#if !defined(RESULT) && !defined(GROUPED)
  const uint out_base = split_at(r, head, split);
#endif
  if (lane == 0) KEEP(D, largest);
  for (uint d = lane; d <= D; d += WORKGROUP) {
    float parts[PARTS];
    [[unroll]] for (uint p = 0; p < PARTS; ++p) parts[p] = part_sums[p * PART + d];
    JOIN_IN_PAIRS(parts, PARTS, PLUS)
    if (d == 0) KEEP(D + 1, parts[0]);
    else KEEP(d - 1, parts[0]);
  }
  return true;
}

#ifdef JOINED
// Joins the splits in order, some on their way at once.
const uint AT_ONCE = SPLITS < 16 ? SPLITS : 16;
#define LOAD_VALUES(first) \
  [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) { \
    values[i] = partial[base + min(first + i, count - 1) * SPLIT + d]; \
  }
void join(uint head, uint r) {
  const uint lane = lane_index(), place = r * HEADS + head;
  const uvec2 used = seen_splits(piece.row_base + r);
  const uint count = used.y - used.x;
  memoryBarrierBuffer();
  barrier();
  if (lane == 0) {
    is_last = atomicAdd(counts[place], 1u) + 1 == count;
    if (is_last) counts[place] = 0;  // for the next step
  }
  barrier();
  if (!is_last) return;
  memoryBarrierBuffer();
  const uint base = split_at(r, head, used.x), own = base + min(lane, count - 1) * SPLIT + D;
  const float own_largest = partial[own], own_total = partial[own + 1];
  uint d = min(lane, D - 1);
  float values[AT_ONCE];
  LOAD_VALUES(0)
  const float largest = largest_of_all(own_largest, lane);
  if (lane < count) {
    weight[lane] = exp_f(own_largest - largest);
    totals[lane] = own_total;
  }
  barrier();
  float total = 0.0;
  for (uint s = 0; s < count; ++s) total = fma(weight[s], totals[s], total);
  for (d = lane; d < D; d += WORKGROUP) {
    float y = 0.0;
    for (uint first = 0; first < count; first += AT_ONCE) {
      if (first > 0 || d != lane) {
        LOAD_VALUES(first)
      }
      [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
        if (first + i < count) y = fma(weight[first + i], values[i], y);
      }
    }
    result[r * C + head * D + d] = JOINED(y * (1.0 / total));
  }
}
#endif

void main() {
  const uint head = gl_WorkGroupID.x, r = gl_WorkGroupID.z;
  if (!has_row(r)) return;
#ifdef RESULT
  const uvec2 used = seen_splits(piece.row_base + r);
  uint split = 0;
  do {  // the first split's loads do not wait for which are seen
    attend(head, split, r);
    barrier();
    split = max(split + 1, used.x);
  } while (split < used.y);
  float largest = kept[used.x * SPLIT + D];
  for (uint s = used.x + 1; s < used.y; ++s) largest = max(largest, kept[s * SPLIT + D]);
  for (uint d = lane_index(); d < D; d += WORKGROUP) {
    float total = 0.0, y = 0.0;
    for (uint s = used.x; s < used.y; ++s) {
      const float scale = exp_f(kept[s * SPLIT + D] - largest);
      total = fma(scale, kept[s * SPLIT + D + 1], total);
      y = fma(scale, kept[s * SPLIT + d], y);
    }
    result[r * C + head * D + d] = RESULT(y * (1.0 / total));
  }
#elif defined(GROUPED)
  const uint group = gl_WorkGroupID.y;
  const uvec2 seen = seen_keys(piece.row_base + r);
  const uint begin = max(group * GROUP_SPLITS, seen.x / SPLIT_KEYS);
  const uint end = min((group + 1) * GROUP_SPLITS, (seen.y + SPLIT_KEYS - 1) / SPLIT_KEYS);
  for (uint split = begin; split < end; ++split) {
    attend(head, split, r);
    barrier();
  }
  if (begin >= end) return;
  const uint from = begin % GROUP_SPLITS, to = from + (end - begin);
  float largest = kept[from * SPLIT + D];
  for (uint s = from + 1; s < to; ++s) largest = max(largest, kept[s * SPLIT + D]);
  const uint base = split_at(r, head, group);
  for (uint d = lane_index(); d <= D; d += WORKGROUP) {
    float y = 0.0;  // behind the last channel the sum of weights
    for (uint s = from; s < to; ++s) {
      y = fma(exp_f(kept[s * SPLIT + D] - largest), kept[s * SPLIT + (d < D ? d : D + 1)], y);
    }
    partial[base + (d < D ? d : D + 1)] = y;
  }
  if (lane_index() == 0) partial[base + D] = largest;
#else
  if (!attend(head, gl_WorkGroupID.y, r)) return;
#endif
#ifdef JOINED
  join(head, r);
#endif
}
)glsl"
