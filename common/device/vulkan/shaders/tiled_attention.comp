R"glsl(
// Attention of prompt rows by matrix units. A workgroup takes one head of ROWS rows, 16 a subgroup, and
// walks the keys of each sequence among its rows in tiles of KEYS at absolute positions, from the first
// that a row sees to the last: scores, their weights under the largest so far, weighted sums of values.
// A row's result depends on its own keys alone. D is a multiple of 16.
layout(set = 0, binding = 1) restrict readonly buffer Q { vec2 q_rows[]; };
layout(set = 0, binding = 2) restrict writeonly buffer Result { uint result[]; };  // halves
layout(set = 0, binding = 3) restrict readonly buffer Keys { uvec4 k_cache[]; };
layout(set = 0, binding = 4) restrict readonly buffer Values { uvec4 v_cache[]; };
layout(set = 0, binding = 3) restrict readonly buffer KeyBytes { uvec2 k_bytes[]; };
layout(set = 0, binding = 4) restrict readonly buffer ValueBytes { uvec2 v_bytes[]; };
layout(set = 0, binding = 3) restrict readonly buffer KeyScales { uint16_t k_scales[]; };
layout(set = 0, binding = 4) restrict readonly buffer ValueScales { uint16_t v_scales[]; };

const uint KEYS = TILE_KEYS(D), PART = TILE_PART(D), PARTS = D / PART;
const uint KEY_TILES = KEYS / 16, D_TILES = D / 16, PART_TILES = PART / 16;
const uint ROWS = SUBGROUPS * 16;
const uint ROW_LANES = SUBGROUP / 16;  // lanes of a row
const uint KEY_PAIRS = KEYS / 2 / ROW_LANES;  // key pairs of a lane
const uint PART_PAIRS = PART / 2 / ROW_LANES;
const uint WIDEST = PART > KEYS ? PART : KEYS;
const uint D_CHUNKS = D / 8;  // uvec4 of a key
const uint LOADS = KEYS * D_CHUNKS / WORKGROUP;
const uint FLOAT_STRIDE = TILE_FLOATS(WIDEST);
const uint HALF_STRIDE = TILE_HALVES(WIDEST);
const uint KEY_STRIDE = TILE_CHUNKS(D);
shared float floats[ROWS * FLOAT_STRIDE];  // scores, then sums of values
shared uint halves[ROWS * HALF_STRIDE];    // q, then weights
shared uvec4 k_tile[KEYS * KEY_STRIDE];
shared uvec4 v_tile[KEYS * KEY_STRIDE];
shared uint sequences[SUBGROUPS], firsts[SUBGROUPS], ends[SUBGROUPS];
shared float row_scales[ROWS];

// A score, scaled; tanh by an exponential that does not overflow.
float capped(float score) {
  if (CAP == 0.0) return score * SCALE;
  const float e = exp(-2.0 * abs(score * (SCALE / CAP)));
  return CAP * sign(score) * (1.0 - e) / (1.0 + e);
}
// 8 channels as halves, which are made of bytes and their scale where pages are in blocks.
uvec4 halves_of_chunk(uvec4 chunk) {
  if (KV_TYPE != 3) return chunk;
  const float scale = scale_of_half(chunk.z);
  uvec4 pairs;
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const int two = int(chunk[i / 2] >> i % 2 * 16);
    pairs[i] = packHalf2x16(scale * vec2(two << 24 >> 24, two << 16 >> 24));
  }
  return pairs;
}
uint least(uint value) {
  [[unroll]] for (uint offset = 1; offset < SUBGROUP; offset <<= 1) {
    value = min(value, subgroupShuffleXor(value, offset));
  }
  return value;
}

void main() {
  const uint head = gl_WorkGroupID.x, lane = gl_SubgroupInvocationID;
  const uint rows = row_count();
  // The last rows have the most keys: they begin first.
  const uint block = gl_NumWorkGroups.y - 1 - gl_WorkGroupID.y;
  const uint row0 = block * ROWS + gl_SubgroupID * 16;
  const uint own = lane / ROW_LANES, part = lane % ROW_LANES;
  const uint r = min(row0 + own, rows - 1);
  const uvec2 seen_of_row = seen_keys(piece.row_base + r);
  const uint seen_first = seen_of_row.x, seen_end = seen_of_row.y;
  const uint sequence = symbol(SEQUENCES, piece.row_base + r);
#ifdef BIASED
  const uint own_place = symbol(POSITIONS, piece.row_base + r);
#endif
  const uint float_base = gl_SubgroupID * 16 * FLOAT_STRIDE;
  const uint half_base = gl_SubgroupID * 16 * HALF_STRIDE;
  const uint float_row = float_base + own * FLOAT_STRIDE, half_row = half_base + own * HALF_STRIDE;

  const uint q_row = (r * Q_STRIDE + Q_FIRST + head * D) / 2;
  fcoopmatNV<16, gl_ScopeSubgroup, LM, LK> q[D_TILES];
  [[unroll]] for (uint p = 0; p < PARTS; ++p) {
    if (p > 0) subgroupBarrier();
    [[unroll]] for (uint i = 0; i < PART_PAIRS; ++i) {
      const uint pair = i * ROW_LANES + part;
      halves[half_row + pair] = packHalf2x16(q_rows[q_row + p * (PART / 2) + pair]);
    }
    subgroupBarrier();
    [[unroll]] for (uint d = 0; d < PART_TILES; ++d) {
      coopMatLoadNV(q[p * PART_TILES + d], halves, half_base + d * 8, HALF_STRIDE, false);
    }
  }
  fcoopmatNV<32, gl_ScopeSubgroup, LM, LN> total[D_TILES];
  [[unroll]] for (uint d = 0; d < D_TILES; ++d) {
    total[d] = fcoopmatNV<32, gl_ScopeSubgroup, LM, LN>(0.0);
  }
  float largest = -3.4e38, sum = 0.0;

  bool pending = row0 + own < rows;
  for (;;) {
    const uint first_pending = least(pending ? sequence : ~0u);
    barrier();
    if (lane == 0) sequences[gl_SubgroupID] = first_pending;
    barrier();
    uint current = ~0u;
    for (uint i = 0; i < SUBGROUPS; ++i) current = min(current, sequences[i]);
    if (current == ~0u) break;
    const bool mine = pending && sequence == current;
    pending = pending && !mine;
    // The keys that this subgroup's rows see, and the workgroup's; none where it has no such rows.
    const uint own_first = least(mine ? seen_first : ~0u);
    const uint own_end = ~least(mine ? ~seen_end : ~0u);
    if (lane == 0) {
      firsts[gl_SubgroupID] = own_first;
      ends[gl_SubgroupID] = own_end;
    }
    barrier();
    uint begin = ~0u, end = 0;
    for (uint i = 0; i < SUBGROUPS; ++i) {
      begin = min(begin, firsts[i]);
      end = max(end, ends[i]);
    }

    // The next tile is on its way while one is used. Before the first key and past the last are zeros:
    // what the pages hold there is not ours, and 0 times it may not be 0.
    const uint table = table_of_sequence(current);
    uvec4 ks[LOADS], vs[LOADS];
#define FETCH(first) \
    [[unroll]] for (uint i = 0; i < LOADS; ++i) { \
      const uint at = i * WORKGROUP + lane_index(); \
      const uint key = (first) + at / D_CHUNKS; \
      ks[i] = vs[i] = uvec4(0); \
      if (key >= begin && key < end) { \
        const uint token = symbols[table + key / PAGE_TOKENS] * PAGE_TOKENS + key % PAGE_TOKENS; \
        const uint c = kv_head(head) * D + at % D_CHUNKS * 8; \
        if (KV_TYPE == 3) { \
          const uint bytes = byte_at(token, c) / 8, scale = scale_at(token, c); \
          ks[i] = uvec4(k_bytes[bytes], uint(k_scales[scale]), 0); \
          vs[i] = uvec4(v_bytes[bytes], uint(v_scales[scale]), 0); \
        } else { \
          ks[i] = k_cache[(token * KV_WIDTH + c) / 8]; \
          vs[i] = v_cache[(token * KV_WIDTH + c) / 8]; \
        } \
      } \
    }
    const uint first_tile = begin / KEYS * KEYS;
    FETCH(first_tile)
    for (uint first = first_tile; first < end; first += KEYS) {
      barrier();
      [[unroll]] for (uint i = 0; i < LOADS; ++i) {
        const uint at = i * WORKGROUP + lane_index();
        k_tile[at / D_CHUNKS * KEY_STRIDE + at % D_CHUNKS] = halves_of_chunk(ks[i]);
        v_tile[at / D_CHUNKS * KEY_STRIDE + at % D_CHUNKS] = halves_of_chunk(vs[i]);
      }
      barrier();
      if (first + KEYS < end) { FETCH(first + KEYS) }
      if (first >= own_end || first + KEYS <= own_first) continue;

      [[unroll]] for (uint t = 0; t < KEY_TILES; ++t) {
        fcoopmatNV<32, gl_ScopeSubgroup, LM, LN> scores =
            fcoopmatNV<32, gl_ScopeSubgroup, LM, LN>(0.0);
        [[unroll]] for (uint d = 0; d < D_TILES; ++d) {
          fcoopmatNV<16, gl_ScopeSubgroup, LK, LN> k;
          coopMatLoadNV(k, k_tile, t * 16 * KEY_STRIDE + d * 2, KEY_STRIDE, true);
          scores = coopMatMulAddNV(q[d], k, scores);
        }
        coopMatStoreNV(scores, floats, float_base + t * 16, FLOAT_STRIDE, false);
      }
      subgroupBarrier();
      vec2 weight[KEY_PAIRS];
      float most = largest;
      // The row sees the tile's keys [skipped, keys).
      const uint skipped = max(seen_first, first) - first;
      const uint keys = mine ? max(seen_end, first) - first : 0;
      [[unroll]] for (uint i = 0; i < KEY_PAIRS; ++i) {
        const uint key = (i * ROW_LANES + part) * 2;
        const vec2 own_scores = vec2(capped(floats[float_row + key]) + bias_of(head, first + key, own_place),
                                     capped(floats[float_row + key + 1]) + bias_of(head, first + key + 1, own_place));
        weight[i].x = key >= skipped && key < keys ? own_scores.x : -3.4e38;
        weight[i].y = key + 1 >= skipped && key + 1 < keys ? own_scores.y : -3.4e38;
        most = max(most, max(weight[i].x, weight[i].y));
      }
      [[unroll]] for (uint offset = 1; offset < ROW_LANES; offset <<= 1) {
        most = max(most, lane_xor(most, offset));
      }
      float tile_sum = 0.0;
      [[unroll]] for (uint i = 0; i < KEY_PAIRS; ++i) {
        const uint key = (i * ROW_LANES + part) * 2;
        const float w0 = key >= skipped && key < keys ? exp(weight[i].x - most) : 0.0;
        const float w1 = key + 1 >= skipped && key + 1 < keys ? exp(weight[i].y - most) : 0.0;
        tile_sum = tile_sum + w0;
        tile_sum = tile_sum + w1;
        halves[half_row + i * ROW_LANES + part] = packHalf2x16(vec2(w0, w1));
      }
      [[unroll]] for (uint offset = 1; offset < ROW_LANES; offset <<= 1) {
        tile_sum = tile_sum + lane_xor(tile_sum, offset);
      }
      const float scale = exp(largest - most);
      sum = fma(sum, scale, tile_sum);
      largest = most;
      if (part == 0) row_scales[gl_SubgroupID * 16 + own] = scale;
      subgroupBarrier();

      fcoopmatNV<16, gl_ScopeSubgroup, LM, LK> weights[KEY_TILES];
      [[unroll]] for (uint t = 0; t < KEY_TILES; ++t) {
        coopMatLoadNV(weights[t], halves, half_base + t * 8, HALF_STRIDE, false);
      }
      // Element (row, column) is at `row`: 0 elements from one column to the next.
      fcoopmatNV<32, gl_ScopeSubgroup, LM, LN> scales;
      coopMatLoadNV(scales, row_scales, gl_SubgroupID * 16, 0, true);
      [[unroll]] for (uint d = 0; d < D_TILES; ++d) {
        [[unroll]] for (uint e = 0; e < total[d].length(); ++e) total[d][e] = total[d][e] * scales[e];
        [[unroll]] for (uint t = 0; t < KEY_TILES; ++t) {
          fcoopmatNV<16, gl_ScopeSubgroup, LK, LN> v;
          coopMatLoadNV(v, v_tile, t * 16 * KEY_STRIDE + d * 2, KEY_STRIDE, false);
          total[d] = coopMatMulAddNV(weights[t], v, total[d]);
        }
      }
      subgroupBarrier();
    }
  }
  [[unroll]] for (uint p = 0; p < PARTS; ++p) {
    if (p > 0) subgroupBarrier();
    [[unroll]] for (uint d = 0; d < PART_TILES; ++d) {
      coopMatStoreNV(total[p * PART_TILES + d], floats, float_base + d * 16, FLOAT_STRIDE, false);
    }
    subgroupBarrier();
    if (row0 + own < rows) {
      [[unroll]] for (uint i = 0; i < PART_PAIRS; ++i) {
        const uint pair = i * ROW_LANES + part, e = float_row + pair * 2;
        const vec2 sums = vec2(floats[e], floats[e + 1]);
        result[(r * C + head * D + p * PART) / 2 + pair] = packHalf2x16(sums / sum);
      }
    }
  }
}
)glsl"
