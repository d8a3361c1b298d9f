R"glsl(
// A matrix in blocks, which lie by segments (LaneOrder), and the products of whole numbers.
layout(set = 0, binding = W_BINDING) restrict readonly buffer Vectors { uvec4 w[]; };
layout(set = 0, binding = SCALES_BINDING) restrict readonly buffer Fours { uvec4 scale_fours[]; };
#ifdef TWIN
layout(set = 0, binding = TWIN_BINDING) restrict readonly buffer TwinVectors { uvec4 twin_w[]; };
layout(set = 0, binding = TWIN_SCALES_BINDING) restrict readonly buffer TwinFours { uvec4 twin_scale_fours[]; };
#endif
const uint VECTORS = IN_BYTES ? 16 : 8;  // of a segment of a column
// Where a column's vector v of a segment is, and four of its words of scales.
uint vector_at(uint column, uint segment, uint v) {
  const uint two = VECTORS / 4;  // vectors of two blocks
  return (column * 4 + v / two) * SEGMENTS * two + segment * two + v % two;
}
uint scales_at(uint column, uint segment, uint four) { return (column * 2 + four) * SEGMENTS + segment; }
float half_in(uint word) { return uintBitsToFloat(word & 0xffffe000u); }

#ifdef DOT
spirv_instruction(extensions = ["SPV_KHR_integer_dot_product"], capabilities = [6019, 6018], id = 4450)
int packed_dot(uint a, uint b, spirv_literal int format);
#define DOT4(a, b) packed_dot(a, b, 0)
#else
int dot_of_bytes(uint a, uint b) {
  const int c = int(a), d = int(b);
  return (c << 24 >> 24) * (d << 24 >> 24) + (c << 16 >> 24) * (d << 16 >> 24) +
         (c << 8 >> 24) * (d << 8 >> 24) + (c >> 24) * (d >> 24);
}
#define DOT4(a, b) dot_of_bytes(a, b)
#endif
int dot_of_vectors(uvec4 a, uvec4 b) {
  return DOT4(a.x, b.x) + DOT4(a.y, b.y) + DOT4(a.z, b.z) + DOT4(a.w, b.w);
}
// A segment's sum with one block more, whose numbers have these sums with the row's: of its first half
// and its second one, or of even numbers and odd ones where they are nibbles. `beside`: the word of the
// block beside it.
float with_block(float sum, int low, int high, uint word, uint beside, bool odd, float x_scale, int x_sum) {
  if (W_TYPE == 5) {
    const int all = low * (int(word << 8) >> 24) + high * (int(word) >> 24);
    return sum + float(all) * (half_of(word) * x_scale);
  }
  if (W_TYPE == 6) {
    const float d = half_in(odd ? beside : word), dmin = half_in(odd ? word : beside);
    sum = sum + (dmin * float(word >> 6 & 63u)) * -(x_scale * float(x_sum));
    return sum + float(low + high) * ((d * float(word & 63u)) * x_scale);
  }
  const int less = W_TYPE == 4 ? 8 * x_sum : 0;
  return sum + float(low + high - less) * (uintBitsToFloat(word) * x_scale);
}
)glsl"
