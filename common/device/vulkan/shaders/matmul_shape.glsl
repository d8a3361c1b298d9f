R"glsl(
layout(constant_id = 5) const uint K = 8;
layout(constant_id = 6) const uint LANES = 8;
layout(constant_id = 7) const uint BLOCK = 1;
layout(constant_id = 8) const uint COLUMNS_PER_LANE = 1;
layout(constant_id = 9) const uint UNROLL = 1;
layout(constant_id = 10) const uint W_TYPE = 0;    // 0: F32, 1: F16, 2: BF16, 3: Q8_0, 4: Q4_0
layout(constant_id = 11) const uint EXACT_ROWS = 0;  // rows when the recording fixes them, else 0

const uint CHUNKS = (K + 7) / 8;
#ifdef IN_BLOCKS
// The numbers of a chunk, 8 bytes or 8 nibbles, and apart from them a half-precision scale for each
// 32; rows are of whole blocks. (w, w, scale's bits, -) is one in flight.
layout(set = 0, binding = W_BINDING) restrict readonly buffer Nibbles { uint w_nibbles[]; };
layout(set = 0, binding = W_BINDING) restrict readonly buffer Numbers { uvec2 w_bytes[]; };
layout(set = 0, binding = SCALES_BINDING) restrict readonly buffer Scales { uint16_t w_scales[]; };
const uint ROW_VECTORS = (K + 31) / 32 * 4;
const uint PER_CHUNK = 1;
uvec4 chunk_of_w(uint at) {
  const uint scale = uint(w_scales[at / 4]);
  if (W_TYPE == 3) return uvec4(w_bytes[at], scale, 0u);
  return uvec4(w_nibbles[at], 0u, scale, 0u);
}
// By bits: a device may take a half below 2^-14 for 0, which scales often are.
float scale_of(uint bits) {
  const uint size = (bits & 0x7fffu) << 13;
  const float led = uintBitsToFloat(size + 0x38000000u);  // as if a 1 led its bits
  const float scale = size < 0x800000u ? fma(2.0, led, -1.0 / 16384) : led;
  return uintBitsToFloat(floatBitsToUint(scale) | (bits & 0x8000u) << 16);
}
// Numbers 0..3 or 4..7 of a chunk, without their scale. A nibble becomes the last bits of a float,
// for which devices have no conversion.
vec4 quarter_of_w(uvec4 chunk, uint which) {
  if (W_TYPE == 3) {
    const int four = int(which == 0 ? chunk.x : chunk.y);
    return vec4(four << 24 >> 24, four << 16 >> 24, four << 8 >> 24, four >> 24);
  }
  const uint four = chunk.x >> (16 * which);
  return vec4(uintBitsToFloat((four & 0xfu) | 0x4b000000u) - 8388616.0,
              uintBitsToFloat((four & 0xf0u) | 0x49000000u) - 524296.0,
              uintBitsToFloat((four & 0xf00u) | 0x47000000u) - 32776.0,
              uintBitsToFloat((four & 0xf000u) | 0x45000000u) - 2056.0);
}
#define W_VECTOR(at) chunk_of_w(at)
#else
layout(set = 0, binding = W_BINDING) restrict readonly buffer W { uvec4 w[]; };
const uint ROW_VECTORS = W_TYPE == 0 ? CHUNKS * 2 : CHUNKS;  // uvec4 in a row of w
const uint PER_CHUNK = W_TYPE == 0 ? 2 : 1;
#define W_VECTOR(at) w[at]
#endif
const uint GROUPS = WORKGROUP / LANES;
const uint REACH = LANES < SUBGROUP ? LANES : SUBGROUP;  // lanes of an output in one subgroup
const uint SUMS = BLOCK * COLUMNS_PER_LANE;
shared float lane_sums[LANES > SUBGROUP ? SUMS * WORKGROUP : 1];

#ifdef STAGED
// The one row that stage() makes in each workgroup, in halves of chunks: a subgroup reads either
// without bank conflicts. BLOCK is 1.
shared vec4 x_low[CHUNKS];
shared vec4 x_high[CHUNKS];
void put_x(uint four, vec4 value) {
  if ((four & 1u) == 0u) x_low[four >> 1] = value;
  else x_high[four >> 1] = value;
}
#else
layout(set = 0, binding = 1) restrict readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 1) restrict readonly buffer X4 { vec4 x4[]; };
vec4 load_x(uint row, uint k) {
  if (K % 4 == 0) {
    if (K % 8 == 0 || k < K) return x4[row * (K / 4) + k / 4];
    return vec4(0.0);
  }
  vec4 v = vec4(0.0);
  uint at = row * K + k;
  if (k < K) v.x = x1[at];
  if (k + 1 < K) v.y = x1[at + 1];
  if (k + 2 < K) v.z = x1[at + 2];
  if (k + 3 < K) v.w = x1[at + 3];
  return v;
}
#endif
)glsl"
