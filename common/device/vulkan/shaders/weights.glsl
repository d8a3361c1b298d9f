R"glsl(
// The shape of a product's matrix: rows of K numbers, cut into chunks of 8, one row a column of w.
const uint CHUNKS = (K + 7) / 8;
#if defined(TWIN) || defined(ROTATED)
const uint EACH = 2;  // columns that are finished together
#else
const uint EACH = 1;
#endif
// An element of a buffer of the matrix, or, with which = 1, of that of its twin.
#ifdef TWIN
#define OF_MATRIX(which, name, at) ((which) == 0 ? name[at] : twin_##name[at])
#else
#define OF_MATRIX(which, name, at) name[at]
#endif

#ifdef IN_BLOCKS
// In blocks (lane_order.h) a chunk is 8 bytes or 8 nibbles, and a row of them lies in the order in
// which LANES lanes take it by vectors of 16 bytes: chunk t of SIDE rounds side by side, then those of
// lane t + 1; the rounds left over are in order along the row. Apart from them lie scales, one for
// each 32 numbers, in the same order: SIDE for each four lanes; a row of them is filled up to a
// multiple of 4. Numbers of Q6_K are bytes, too; a word of its scales is a half, then two signed bytes,
// each of which times the half is the scale of 16 numbers. A word of Q4_K is completed by that of the
// block beside it, which has the other of d and dmin.
layout(set = 0, binding = W_BINDING) restrict readonly buffer Numbers { uvec2 w_bytes[]; };
layout(set = 0, binding = W_BINDING) restrict readonly buffer Nibbles { uint w_nibbles[]; };
layout(set = 0, binding = SCALES_BINDING) restrict readonly buffer Scales { uint w_scales[]; };
#ifdef TWIN
layout(set = 0, binding = TWIN_BINDING) restrict readonly buffer TwinNumbers { uvec2 twin_w_bytes[]; };
layout(set = 0, binding = TWIN_BINDING) restrict readonly buffer TwinNibbles { uint twin_w_nibbles[]; };
layout(set = 0, binding = TWIN_SCALES_BINDING) restrict readonly buffer TwinScales { uint twin_w_scales[]; };
#endif
const bool IN_BYTES = W_TYPE == 3 || W_TYPE == 5;
const uint SIDE = IN_BYTES ? 2 : 4;
const uint BY_SIDE = CHUNKS / LANES / SIDE * SIDE;  // rounds in vectors
const uint ROW_BLOCKS = (K + 31) / 32;
const uint ROW_SCALES = (ROW_BLOCKS + 3) / 4 * 4;
// The half in the low bits, without a number that devices may take for 0: most of Q6_K's halves have
// no leading one.
float half_of(uint bits) {
  const uint exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  const float size = float(exponent == 0 ? fraction : fraction | 1024u) *
                     uintBitsToFloat((max(exponent, 1u) + 102u) << 23);
  return (bits & 0x8000u) == 0 ? size : -size;
}
// The bits of the scale, a float, of chunk `chunk` of its block.
uint scale_bits(uint word, uint chunk) {
  if (W_TYPE != 5) return word;
  const int factor = int(word << ((chunk & 2u) == 0 ? 8 : 0)) >> 24;
  return floatBitsToUint(half_of(word) * float(factor));
}
// The chunk at a place of a column, among those in vectors or behind them, in order: (numbers,
// numbers, scale's bits); of Q4_K (numbers, the word of the block beside it, its own).
uvec3 chunk_at(uint which, uint column, uint place, bool in_order) {
  const uint block = column * ROW_SCALES +
                     (in_order ? place / 4 : place / (4 * SIDE) * SIDE + place % SIDE);
  const uint scale = scale_bits(OF_MATRIX(which, w_scales, block), in_order ? place : place / SIDE);
  const uint at = column * (ROW_BLOCKS * 4) + place;
  if (IN_BYTES) return uvec3(OF_MATRIX(which, w_bytes, at), scale);
  const uint beside =
      W_TYPE == 6 ? OF_MATRIX(which, w_scales, block ^ (in_order ? 1u : SIDE)) : 0u;
  return uvec3(OF_MATRIX(which, w_nibbles, at), beside, scale);
}
// A number of a chunk stands for its product with scale_of() less less_of(). Either is exact.
float scale_of(uvec3 chunk) {
  if (W_TYPE != 6) return uintBitsToFloat(chunk.z);
  const uint d = (chunk.z & 0x1000u) == 0 ? chunk.z : chunk.y;
  return uintBitsToFloat(d & 0xffffe000u) *
         (uintBitsToFloat((chunk.z & 0x3fu) | 0x4b000000u) - 8388608.0);
}
float less_of(uvec3 chunk) {
  if (W_TYPE != 6) return 0.0;
  const uint d = (chunk.z & 0x1000u) == 0 ? chunk.y : chunk.z;
  return uintBitsToFloat(d & 0xffffe000u) *
         (uintBitsToFloat((chunk.z & 0xfc0u) | 0x48000000u) - 131072.0);
}
// Numbers 0..3 or 4..7 of a chunk, without their scale. A nibble becomes the last bits of a float,
// or of a half, two at a time, for which devices have no conversion.
vec4 quarter_of_w(uvec3 chunk, uint which) {
  if (IN_BYTES) {
    const int four = int(which == 0 ? chunk.x : chunk.y);
    return vec4(four << 24 >> 24, four << 16 >> 24, four << 8 >> 24, four >> 24);
  }
#ifdef HALVES
  f16vec2 pairs[4];  // numbers i and i + 4
  [[unroll]] for (uint i = 0; i < 4; ++i) {
    const bool odd = (i & 1u) != 0u;
    const uint bits = chunk.x >> (i / 2 * 8) & (odd ? 0x00f000f0u : 0x000f000fu);
    pairs[i] = unpackFloat2x16(bits | (odd ? 0x54005400u : 0x64006400u)) -
               f16vec2((odd ? 64.0 : 1024.0) + (W_TYPE == 6 ? 0.0 : 8.0));
  }
  if (which == 0) return vec4(pairs[0].x, pairs[1].x, pairs[2].x, pairs[3].x);
  return vec4(pairs[0].y, pairs[1].y, pairs[2].y, pairs[3].y);
#else
  const uint four = chunk.x >> (16 * which);
  const vec4 bits = vec4(uintBitsToFloat((four & 0xfu) | 0x4b000000u),
                         uintBitsToFloat((four & 0xf0u) | 0x49000000u),
                         uintBitsToFloat((four & 0xf00u) | 0x47000000u),
                         uintBitsToFloat((four & 0xf000u) | 0x45000000u));
  if (W_TYPE == 6) return bits - vec4(8388608.0, 524288.0, 32768.0, 2048.0);
  return bits - vec4(8388616.0, 524296.0, 32776.0, 2056.0);
#endif
}
#endif
)glsl"
