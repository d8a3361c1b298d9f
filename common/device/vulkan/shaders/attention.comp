R"glsl(
// One head of one row over one split: the keys of 128 positions at an absolute multiple of 128, up
// to the row's own. Leaves the weighted sum of values, the largest score and the sum of weights.
// WORKGROUP is 128: lane i scores key i; then the values are summed in groups of lanes, and the
// groups are added in order. With RESULT a workgroup takes all splits of a row one after another, as
// is best for many rows, and joins them as merged.glsl does.
layout(set = 0, binding = 1) readonly buffer Qkv { float qkv[]; };
#ifdef RESULT
layout(set = 0, binding = 2) writeonly buffer Result { RESULT result[]; };
shared float kept[SPLITS * SPLIT];
#define KEEP(at, value) kept[split * SPLIT + (at)] = value
#else
layout(set = 0, binding = 2) writeonly buffer Partial { float partial[]; };
#define KEEP(at, value) partial[out_base + (at)] = value
#endif
#define CACHE(name, at) layout(set = 0, binding = at) readonly buffer name##Cache { uvec4 name[]; };
CACHE(k0, K_BINDING) CACHE(v0, V_BINDING)
#if CACHE_PIECES > 1
CACHE(k1, K_BINDING + 1) CACHE(k2, K_BINDING + 2) CACHE(k3, K_BINDING + 3)
CACHE(k4, K_BINDING + 4) CACHE(k5, K_BINDING + 5)
CACHE(v1, V_BINDING + 1) CACHE(v2, V_BINDING + 2) CACHE(v3, V_BINDING + 3)
CACHE(v4, V_BINDING + 4) CACHE(v5, V_BINDING + 5)
#endif
uvec4 load_k(uint part, uint i) {
#if CACHE_PIECES > 1
  if (part == 1) return k1[i];
  if (part == 2) return k2[i];
  if (part == 3) return k3[i];
  if (part == 4) return k4[i];
  if (part == 5) return k5[i];
#endif
  return k0[i];
}
uvec4 load_v(uint part, uint i) {
#if CACHE_PIECES > 1
  if (part == 1) return v1[i];
  if (part == 2) return v2[i];
  if (part == 3) return v3[i];
  if (part == 4) return v4[i];
  if (part == 5) return v5[i];
#endif
  return v0[i];
}
float value_at(uint part, uint e) {
  if (KV_TYPE == 0) return uintBitsToFloat(load_v(part, e >> 2)[e & 3u]);
  return unpackHalf2x16(load_v(part, e >> 3)[(e >> 1) & 3u])[e & 1u];
}
float key_at(uint part, uint e) {
  if (KV_TYPE == 0) return uintBitsToFloat(load_k(part, e >> 2)[e & 3u]);
  return unpackHalf2x16(load_k(part, e >> 3)[(e >> 1) & 3u])[e & 1u];
}

// Elements in 16 bytes of a cache. When heads are whole vectors, a lane scores its key vector by
// vector, all on their way at once, and (group, vector) sums a vector of every GROUPS-th value.
const uint WIDTH = KV_TYPE == 0 ? 4 : 8;
const uint HEAD_VECTORS = D / WIDTH;  // glslang 12 loses an expression inside `?:`
const bool WHOLE = D % WIDTH == 0 && HEAD_VECTORS <= 16;
const uint VECTORS = WHOLE ? HEAD_VECTORS : 1;
const uint GROUPS = KEYS / VECTORS;
const uint GROUP_KEYS = (KEYS + GROUPS - 1) / GROUPS;
const uint PARTS = D < KEYS ? KEYS / D : 1;  // of the values when heads are not whole vectors
shared float q[D];
shared float weight[KEYS];
uint split_page(uint table, uint split, uint key) {
  return symbols[table + min((split * KEYS + key) / PAGE_TOKENS, TABLE_PAGES - 1)];
}
// A key of a page, and its piece and its place there.
uint place(uint page, uint key) { return page * PAGE_TOKENS + key % PAGE_TOKENS; }
#if CACHE_PIECES > 1
#define PART(at) ((at) / (PIECE_PAGES * PAGE_TOKENS))
#define LOCAL(at) ((at) % (PIECE_PAGES * PAGE_TOKENS))
#else
#define PART(at) 0u
#define LOCAL(at) (at)
#endif

void attend(uint head, uint split, uint r) {
  const uint row = piece.row_base + r;
  const uint lane = lane_index();
  const uint group = lane / VECTORS, vector = lane % VECTORS;
  // The pages are looked up while the position is: theirs is the first of three waits.
  const uint table = table_of(row);
  const uint own_page = split_page(table, split, lane);
  uint value_pages[GROUP_KEYS];
  [[unroll]] for (uint n = 0; n < GROUP_KEYS; ++n) {
    value_pages[n] = split_page(table, split, group + n * GROUPS);
  }
  const uint position = symbol(POSITIONS, row);
  if (split * KEYS > position) return;
  const uint keys = min(position + 1 - split * KEYS, KEYS);

  // Keys, values and q are on their way at once. Past the row's own position they are whatever the
  // pages hold, and not used.
  uvec4 k[VECTORS], values[GROUP_KEYS];
  const uint own = place(own_page, lane);
  if (WHOLE) {
    [[unroll]] for (uint i = 0; i < VECTORS; ++i) {
      k[i] = load_k(PART(own), (LOCAL(own) * C + head * D) / WIDTH + i);
    }
    [[unroll]] for (uint n = 0; n < GROUP_KEYS; ++n) {
      const uint at = place(value_pages[n], group + n * GROUPS);
      values[n] = load_v(PART(at), (LOCAL(at) * C + head * D) / WIDTH + vector);
    }
  }
  for (uint d = lane; d < D; d += KEYS) q[d] = qkv[r * 3 * C + head * D + d];
  barrier();

  float score = -3.4e38;
  if (lane < keys) {
    float sum = 0.0;
    if (WHOLE) {
      [[unroll]] for (uint i = 0; i < VECTORS; ++i) {
        [[unroll]] for (uint j = 0; j < 4; ++j) {
          if (KV_TYPE == 0) {
            sum = fma(uintBitsToFloat(k[i][j]), q[i * 4 + j], sum);
          } else {
            const vec2 both = unpackHalf2x16(k[i][j]);
            sum = fma(both.x, q[i * 8 + 2 * j], sum);
            sum = fma(both.y, q[i * 8 + 2 * j + 1], sum);
          }
        }
      }
    } else {
      const uint base = LOCAL(own) * C + head * D;
      for (uint d = 0; d < D; ++d) sum = fma(key_at(PART(own), base + d), q[d], sum);
    }
    score = sum * SCALE;
  }
  const float largest = tree_max(score, lane);
  float e = lane < keys ? exp_f(score - largest) : 0.0;
  const float total = tree_sum(e, lane);
  weight[lane] = e;
  barrier();

#ifndef RESULT
  const uint out_base = ((r * HEADS + head) * SPLITS + split) * SPLIT;
#endif
  if (lane == 0) {
    KEEP(D, largest);
    KEEP(D + 1, total);
  }
  if (WHOLE) {
    float sums[WIDTH];
    [[unroll]] for (uint j = 0; j < WIDTH; ++j) sums[j] = 0.0;
    if (group < GROUPS) {
      [[unroll]] for (uint n = 0; n < GROUP_KEYS; ++n) {
        // Past the keys a weight is 0 and a value may be anything. No branch: a compiler would
        // move the load into it.
        const uint key = group + n * GROUPS;
        const bool there = key < keys;
        const float w = weight[min(key, KEYS - 1)];
        [[unroll]] for (uint j = 0; j < 4; ++j) {
          const uint bits = there ? values[n][j] : 0u;
          if (KV_TYPE == 0) {
            sums[j] = fma(w, uintBitsToFloat(bits), sums[j]);
          } else {
            const vec2 both = unpackHalf2x16(bits);
            sums[2 * j] = fma(w, both.x, sums[2 * j]);
            sums[2 * j + 1] = fma(w, both.y, sums[2 * j + 1]);
          }
        }
      }
      [[unroll]] for (uint j = 0; j < WIDTH; ++j) {
        exchange[group * D + vector * WIDTH + j] = sums[j];
      }
    }
    barrier();
    for (uint d = lane; d < D; d += KEYS) {
      float sum = exchange[d];
      for (uint g = 1; g < GROUPS; ++g) sum = sum + exchange[g * D + d];
      KEEP(d, sum);
    }
    return;
  }
  const uint part = PARTS > 1 ? lane / D : 0;
  for (uint d = PARTS > 1 ? lane % D : lane; d < D; d += KEYS) {
    float sum = 0.0;
    if (part < PARTS) {
      for (uint key = part; key < keys; key += PARTS) {
        const uint at = place(split_page(table, split, key), key);
        sum = fma(weight[key], value_at(PART(at), LOCAL(at) * C + head * D + d), sum);
      }
    }
    if (PARTS == 1) KEEP(d, sum);
    else exchange[lane] = sum;
  }
  if (PARTS > 1) {
    barrier();
    if (lane < D) {
      float sum = exchange[lane];
      for (uint p = 1; p < PARTS; ++p) sum = sum + exchange[p * D + lane];
      KEEP(lane, sum);
    }
  }
}

void main() {
  const uint head = gl_WorkGroupID.x, r = gl_WorkGroupID.z;
  if (r >= row_count()) return;
#ifdef RESULT
  const uint used = symbol(POSITIONS, piece.row_base + r) / KEYS + 1;
  uint split = 0;
  do {  // the first split's loads do not wait for how many there are
    attend(head, split, r);
    barrier();
  } while (++split < used);
  float largest = kept[D];
  for (uint s = 1; s < used; ++s) largest = max(largest, kept[s * SPLIT + D]);
  for (uint d = lane_index(); d < D; d += KEYS) {
    float total = 0.0, y = 0.0;
    for (uint s = 0; s < used; ++s) {
      const float scale = exp_f(kept[s * SPLIT + D] - largest);
      total = fma(scale, kept[s * SPLIT + D + 1], total);
      y = fma(scale, kept[s * SPLIT + d], y);
    }
    result[r * C + head * D + d] = RESULT(y / total);
  }
#else
  attend(head, gl_WorkGroupID.y, r);
#endif
}
)glsl"
