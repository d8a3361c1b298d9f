R"glsl(
// Attention over keys and values in bf16, with q and the weights rounded to bf16, so that each product of two
// is exact: the order of sums that CPUs have (cpu/kernels/page_attention.h), which is exact1's. A workgroup of
// SPLIT_KEYS lanes has one head of one row over one split, the keys of 128 positions at an absolute multiple
// of 128; the last one of a head of a row joins what all left, one by one.
layout(set = 0, binding = 1) readonly buffer Q { float q_rows[]; };
layout(set = 0, binding = 2) coherent buffer Partial { float partial[]; };
layout(set = 0, binding = 2) coherent buffer Counts { uint counts[]; };
layout(set = 0, binding = RESULT_BINDING) writeonly buffer Result { JOINED result[]; };
shared bool is_last;
const uint PAGES = SPLIT_KEYS / PAGE_TOKENS;
const uint VECTORS = D / 8;  // of a head, 8 channels each
const uint AT_ONCE = SPLITS < 8 ? SPLITS : 8;  // splits whose results are on their way
shared float q[D];
shared float weight[SPLIT_KEYS], rounded_weight[SPLIT_KEYS];
shared float place_sums[PAGE_TOKENS];
shared float page_sums[PAGES * D];

uint split_at(uint r, uint head, uint split) { return COUNT_WORDS + ((r * HEADS + head) * SPLITS + split) * SPLIT; }
float even_of(uint pair) { return uintBitsToFloat(pair << 16); }
float odd_of(uint pair) { return uintBitsToFloat(pair & 0xffff0000u); }
uint vector_at(uint at, uint head) { return (LOCAL(at) * KV_WIDTH + kv_head(head) * D) / 8; }

#define LOAD_VALUES(v) \
  [[unroll]] for (uint i = 0; i < PAGE_TOKENS; ++i) { \
    const uint at = place(page, i); \
    values[i] = load_v(PIECE(at), vector_at(at, head) + min(v, VECTORS - 1)); \
  }

// Returns whether the row sees any of the split's keys.
bool attend(uint head, uint split, uint r) {
  const uint row = piece.row_base + r, lane = lane_index();
  const uint table = table_of(row), page = split_page(table, split, lane);
  const uvec2 seen_of_row = seen_keys(row);
#ifdef BIASED
  const uint row_place = symbol(POSITIONS, row);
#endif
  if (split * SPLIT_KEYS >= seen_of_row.y || (split + 1) * SPLIT_KEYS <= seen_of_row.x) return false;
  const uint least = max(seen_of_row.x, split * SPLIT_KEYS) - split * SPLIT_KEYS;
  const uint end = min(seen_of_row.y - split * SPLIT_KEYS, SPLIT_KEYS);
  // Keys and values are on their way at once, of the lane's key and of its page's first 8 channels. What
  // the row does not see is whatever the pages hold, and not used.
  const uint own_page = lane / PAGE_TOKENS;
  const uint own_place = place(page, lane), first = vector_at(own_place, head);
  uvec4 keys[VECTORS], values[PAGE_TOKENS];
  [[unroll]] for (uint v = 0; v < VECTORS; ++v) keys[v] = load_k(PIECE(own_place), first + v);
  LOAD_VALUES(lane % PAGE_TOKENS)
  for (uint d = lane; d < D; d += WORKGROUP) q[d] = bf16_f(q_rows[r * Q_STRIDE + Q_FIRST + head * D + d]);
  barrier();

  // A lane has a key. Of 32 channels a chain of the even ones and one of the odd.
  const bool seen = lane >= least && lane < end;
  float score = 0.0;
  if (seen) {
    [[unroll]] for (uint step = 0; step < VECTORS; step += 4) {
      float even = 0.0, odd = 0.0;
      [[unroll]] for (uint v = 0; v < 4; ++v) {
        [[unroll]] for (uint i = 0; i < 4; ++i) {
          const uint d = (step + v) * 8 + 2 * i;
          even = even + q[d] * even_of(keys[step + v][i]);
          odd = odd + q[d + 1] * odd_of(keys[step + v][i]);
        }
      }
      score = score + (even + odd);
    }
    score = (CAP > 0.0 ? CAP * tanh_f(score * (SCALE / CAP)) : score * SCALE) +
            bias_of(head, split * SPLIT_KEYS + lane, row_place);
  }
  const float largest = largest_of_all(seen ? score : -3.4e38, lane);
  const float e = seen ? weight_f(score - largest) : 0.0;
  weight[lane] = e;
  rounded_weight[lane] = bf16_f(e);
  barrier();

  // The weights' sum: a chain of each place of a page, then a tree.
  const uint base = split_at(r, head, split);
  if (lane < PAGE_TOKENS) {
    float sum = 0.0;
    [[unroll]] for (uint p = 0; p < PAGES; ++p) sum = sum + weight[p * PAGE_TOKENS + lane];
    place_sums[lane] = sum;
  }
  // Values: a chain of a page's even keys and one of the odd; pages in a chain. Lanes of a page have 8
  // channels each.
  for (uint v = lane % PAGE_TOKENS; v < VECTORS; v += PAGE_TOKENS) {
    if (v >= PAGE_TOKENS) {
      LOAD_VALUES(v)
    }
    float even[8], odd[8];
    [[unroll]] for (uint j = 0; j < 8; ++j) {
      even[j] = 0.0;
      odd[j] = 0.0;
    }
    [[unroll]] for (uint i = 0; i < PAGE_TOKENS; ++i) {
      const uint key = own_page * PAGE_TOKENS + i;
      const bool there = key >= least && key < end;  // else the page holds whatever it does
      [[unroll]] for (uint j = 0; j < 8; ++j) {
        const uint pair = there ? values[i][j / 2] : 0u;
        const float product = rounded_weight[key] * ((j & 1u) == 0u ? even_of(pair) : odd_of(pair));
        if ((i & 1u) == 0u) even[j] = even[j] + product;
        else odd[j] = odd[j] + product;
      }
    }
    [[unroll]] for (uint j = 0; j < 8; ++j) page_sums[own_page * D + v * 8 + j] = even[j] + odd[j];
  }
  barrier();
  for (uint d = lane; d < D; d += WORKGROUP) {
    float sum = 0.0;
    [[unroll]] for (uint p = 0; p < PAGES; ++p) sum = sum + page_sums[p * D + d];
    partial[base + d] = sum;
  }
  if (lane == 0) {
    float sums[PAGE_TOKENS];
    [[unroll]] for (uint i = 0; i < PAGE_TOKENS; ++i) sums[i] = place_sums[i];
    JOIN_HALVES(sums, PAGE_TOKENS, PLUS)
    partial[base + D] = largest;
    partial[base + D + 1] = sums[0];
  }
  return true;
}

// The splits of attention in bf16 are joined one by one, scaled to the largest score so far.
struct Joined {
  float y, largest, total;
};
void join(inout Joined all, float part, vec2 sums, bool begins) {
  const float now = begins ? sums.x : max(all.largest, sums.x);
  const float e = weight_f(begins ? 0.0 : min(all.largest, sums.x) - now);  // the other one's is e^0
  const float before = begins ? 0.0 : all.largest < sums.x ? e : 1.0;
  const float own = begins || all.largest < sums.x ? 1.0 : e;
  all.y = small_f(all.y) * before + small_f(part) * own;
  all.total = all.total * before + sums.y * own;
  all.largest = now;
}
float result_of(Joined all) { return clean_f(all.y * near_recip_f(all.total)); }

void main() {
  const uint head = gl_WorkGroupID.x, r = gl_WorkGroupID.z, lane = lane_index();
  if (!has_row(r) || !attend(head, gl_WorkGroupID.y, r)) return;
  const uvec2 used = seen_splits(piece.row_base + r);
  memoryBarrierBuffer();
  barrier();
  if (lane == 0) {
    const uint at = r * HEADS + head;
    is_last = atomicAdd(counts[at], 1u) + 1 == used.y - used.x;
    if (is_last) counts[at] = 0;  // for the next step
  }
  barrier();
  if (!is_last) return;
  memoryBarrierBuffer();
  for (uint d = lane; d < D; d += WORKGROUP) {
    float parts[AT_ONCE];
    vec2 sums[AT_ONCE];
    Joined joined = Joined(0.0, 0.0, 0.0);
    for (uint first = used.x; first < used.y; first += AT_ONCE) {
      [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
        const uint from = split_at(r, head, min(first + i, used.y - 1));
        parts[i] = partial[from + d];
        sums[i] = vec2(partial[from + D], partial[from + D + 1]);
      }
      [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
        if (first + i < used.y) join(joined, parts[i], sums[i], first + i == used.x);
      }
    }
    result[r * C + head * D + d] = JOINED(result_of(joined));
  }
}
)glsl"
