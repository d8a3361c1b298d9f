R"glsl(
// Keys and values into their pages.
#ifdef UNITS
#define HALF float16_t
#define TO_HALF float16_t  // as a tile is converted
#else
#define HALF uint16_t
// To nearest even, whatever the device's own conversion does.
uint half_bits(float value) {
  const uint bits = floatBitsToUint(value);
  const uint sign = bits >> 16 & 0x8000u;
  const uint size = bits & 0x7fffffffu;
  if (size > 0x7f800000u) return sign | 0x7e00u;
  if (size >= 0x477ff000u) return sign | 0x7c00u;
  if (size >= 0x38800000u) return sign | (size - 0x38000000u + 0xfffu + (size >> 13 & 1u)) >> 13;
  if (size < 0x33000001u) return sign;
  const uint shift = 126u - (size >> 23);
  const uint mantissa = (size & 0x7fffffu) | 0x800000u;
  const uint rest = mantissa & ((1u << shift) - 1u), tie = 1u << (shift - 1u);
  uint result = mantissa >> shift;
  if (rest > tie || (rest == tie && (result & 1u) == 1u)) ++result;
  return sign | result;
}
#define TO_HALF(value) uint16_t(KV_TYPE == 2 ? floatBitsToUint(bf16_f(value)) >> 16 : half_bits(value))
#endif
#define CACHE(name, at) \
  layout(set = 0, binding = at) buffer name##Words { uint name##_w[]; }; \
  layout(set = 0, binding = at) buffer name##Half { HALF name##_h[]; };
CACHE(k0, K_BINDING) CACHE(v0, V_BINDING)
#if CACHE_PIECES > 1
CACHE(k1, K_BINDING + 1) CACHE(k2, K_BINDING + 2) CACHE(k3, K_BINDING + 3)
CACHE(k4, K_BINDING + 4) CACHE(k5, K_BINDING + 5)
CACHE(v1, V_BINDING + 1) CACHE(v2, V_BINDING + 2) CACHE(v3, V_BINDING + 3)
CACHE(v4, V_BINDING + 4) CACHE(v5, V_BINDING + 5)
#endif

#define PUT(name) \
  if (whole) name##_w[at] = floatBitsToUint(value); \
  else name##_h[at] = TO_HALF(value)
void put_k(uint part, uint at, float value, bool whole) {
#if CACHE_PIECES > 1
  if (part == 1) { PUT(k1); } else if (part == 2) { PUT(k2); } else if (part == 3) { PUT(k3); }
  else if (part == 4) { PUT(k4); } else if (part == 5) { PUT(k5); } else
#endif
  { PUT(k0); }
}
void put_v(uint part, uint at, float value, bool whole) {
#if CACHE_PIECES > 1
  if (part == 1) { PUT(v1); } else if (part == 2) { PUT(v2); } else if (part == 3) { PUT(v3); }
  else if (part == 4) { PUT(v4); } else if (part == 5) { PUT(v5); } else
#endif
  { PUT(v0); }
}

// A row's keys and values go to its place, which is read before they are there.
uint put_place[FETCHES];
void prepare_put(uint n, uint row) { put_place[n] = symbol(PLACES, row); }
uint put_part(uint n) {
  return CACHE_PIECES > 1 ? put_place[n] / (PIECE_PAGES * PAGE_TOKENS) : 0u;
}
uint put_local(uint n) { return put_place[n] - put_part(n) * PIECE_PAGES * PAGE_TOKENS; }
void put_key(uint n, uint c, float value) {
  put_k(put_part(n), put_local(n) * KV_WIDTH + c, value, KV_TYPE == 0);
}
void put_value(uint n, uint c, float value) {
  put_v(put_part(n), put_local(n) * KV_WIDTH + c, value, KV_TYPE == 0);
}
// Column c of a product, which may be one of keys or of values.
bool is_key(uint c) { return c >= K_FIRST && c < K_FIRST + KV_WIDTH; }
bool is_value(uint c) { return c >= V_FIRST && c < V_FIRST + KV_WIDTH; }
void put_kv(uint n, uint c, float value) {
  if (is_key(c)) put_key(n, c - K_FIRST, value);
  else if (is_value(c)) put_value(n, c - V_FIRST, value);
}

#ifdef UNITS
// A tile of 16 rows and columns [c, c + 16) of keys or values, when the rows are a page.
bool is_page(uint row) {
  const uint place = symbol(PLACES, row);
  return KV_TYPE == 1 && place % PAGE_TOKENS == 0 &&
         symbol(PLACES, row + PAGE_TOKENS - 1) == place + PAGE_TOKENS - 1;
}
void put_tile(uint row, uint c, SUM value) {
  const uint base = symbol(PLACES, row) * KV_WIDTH;
  if (is_key(c)) coopMatStoreNV(HALF_SUM(value), k0_h, base + c - K_FIRST, KV_WIDTH, false);
  else coopMatStoreNV(HALF_SUM(value), v0_h, base + c - V_FIRST, KV_WIDTH, false);
}
#endif
)glsl"
