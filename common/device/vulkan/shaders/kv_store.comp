R"glsl(
// Puts the rows' keys and values into their pages. One workgroup a row.
layout(set = 0, binding = 1) readonly buffer Qkv { float qkv[]; };
#define CACHE(name, at) \
  layout(set = 0, binding = at) buffer name##Float { float name##_f[]; }; \
  layout(set = 0, binding = at) buffer name##Half { uint16_t name##_h[]; };
CACHE(k0, 3) CACHE(k1, 4) CACHE(k2, 5) CACHE(k3, 6) CACHE(k4, 7) CACHE(k5, 8)
CACHE(v0, 9) CACHE(v1, 10) CACHE(v2, 11) CACHE(v3, 12) CACHE(v4, 13) CACHE(v5, 14)

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

#define PUT(name) \
  if (KV_TYPE == 0) name##_f[at] = value; \
  else name##_h[at] = uint16_t(half_bits(value))
void put_k(uint part, uint at, float value) {
  if (part == 0) { PUT(k0); } else if (part == 1) { PUT(k1); } else if (part == 2) { PUT(k2); }
  else if (part == 3) { PUT(k3); } else if (part == 4) { PUT(k4); } else { PUT(k5); }
}
void put_v(uint part, uint at, float value) {
  if (part == 0) { PUT(v0); } else if (part == 1) { PUT(v1); } else if (part == 2) { PUT(v2); }
  else if (part == 3) { PUT(v3); } else if (part == 4) { PUT(v4); } else { PUT(v5); }
}

void main() {
  const uint r = gl_WorkGroupID.x;
  if (r >= row_count()) return;
  const uint row = piece.row_base + r;
  const uint position = symbol(POSITIONS, row);
  const uint page = page_of(symbol(SEQUENCES, row), position);
  const uint base = ((page % PIECE_PAGES) * PAGE_TOKENS + position % PAGE_TOKENS) * C;
  for (uint c = gl_LocalInvocationIndex; c < C; c += WORKGROUP) {
    put_k(page / PIECE_PAGES, base + c, qkv[r * 3 * C + C + c]);
    put_v(page / PIECE_PAGES, base + c, qkv[r * 3 * C + 2 * C + c]);
  }
}
)glsl"
