R"glsl(
// Keys and values as attention reads them, and what its lanes find together.
#define CACHE(name, at) \
  layout(set = 0, binding = at) readonly buffer name##Cache { uvec4 name[]; }; \
  layout(set = 0, binding = at) readonly buffer name##Scales { uint16_t name##_scales[]; };
CACHE(k0, K_BINDING) CACHE(v0, V_BINDING)
#if CACHE_PIECES > 1
CACHE(k1, K_BINDING + 1) CACHE(k2, K_BINDING + 2) CACHE(k3, K_BINDING + 3)
CACHE(k4, K_BINDING + 4) CACHE(k5, K_BINDING + 5)
CACHE(v1, V_BINDING + 1) CACHE(v2, V_BINDING + 2) CACHE(v3, V_BINDING + 3)
CACHE(v4, V_BINDING + 4) CACHE(v5, V_BINDING + 5)
#define OTHER_PIECES(type, c1, c2, c3, c4, c5) \
  if (part == 1) return type(c1); \
  if (part == 2) return type(c2); \
  if (part == 3) return type(c3); \
  if (part == 4) return type(c4); \
  if (part == 5) return type(c5);
#else
#define OTHER_PIECES(type, c1, c2, c3, c4, c5)
#endif
uvec4 load_k(uint part, uint i) {
  OTHER_PIECES(uvec4, k1[i], k2[i], k3[i], k4[i], k5[i])
  return k0[i];
}
uvec4 load_v(uint part, uint i) {
  OTHER_PIECES(uvec4, v1[i], v2[i], v3[i], v4[i], v5[i])
  return v0[i];
}
uint load_k_scale(uint part, uint i) {
  OTHER_PIECES(uint, k1_scales[i], k2_scales[i], k3_scales[i], k4_scales[i], k5_scales[i])
  return uint(k0_scales[i]);
}
uint load_v_scale(uint part, uint i) {
  OTHER_PIECES(uint, v1_scales[i], v2_scales[i], v3_scales[i], v4_scales[i], v5_scales[i])
  return uint(v0_scales[i]);
}
uint split_page(uint table, uint split, uint key) {
  return symbols[table + min((split * SPLIT_KEYS + key) / PAGE_TOKENS, TABLE_PAGES - 1)];
}
// A key of a page, and its piece and its place there.
uint place(uint page, uint key) { return page * PAGE_TOKENS + key % PAGE_TOKENS; }
#if CACHE_PIECES > 1
#define PIECE(at) ((at) / (PIECE_PAGES * PAGE_TOKENS))
#define LOCAL(at) ((at) % (PIECE_PAGES * PAGE_TOKENS))
#else
#define PIECE(at) 0u
#define LOCAL(at) (at)
#endif

shared float part_largest[SUBGROUPS];
// Returns the largest value of all lanes.
float largest_of_all(float value, uint lane) {
  [[unroll]] for (uint offset = 1; offset < SUBGROUP; offset <<= 1) {
    value = max(value, lane_xor(value, offset));
  }
  if (lane % SUBGROUP == 0) part_largest[lane / SUBGROUP] = value;
  barrier();
  if (SUBGROUPS > SUBGROUP) {
    for (uint i = 0; i < SUBGROUPS; ++i) value = max(value, part_largest[i]);
    return value;
  }
  value = part_largest[lane % SUBGROUPS];
  [[unroll]] for (uint offset = 1; offset < SUBGROUPS; offset <<= 1) {
    value = max(value, lane_xor(value, offset));
  }
  return value;
}
)glsl"
