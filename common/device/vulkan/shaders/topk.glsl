R"glsl(
// What both kernels of the top k share. A row is cut into blocks: block b has the columns b,
// b + BLOCKS, b + 2 BLOCKS and so on. The k largest are in blocks whose maximum is among the k
// largest maxima.
const uint BLOCKS = 512;
layout(set = 0, binding = 1) readonly buffer X { uint x[]; };

// Bits of a float as a number that orders like it; what is not finite is largest, 0 is nobody's.
uint order(uint bits) {
  if ((bits & 0x7f800000u) == 0x7f800000u) return 0xffffffffu;
  if (bits == 0x80000000u) return bits;  // -0 is 0
  return bits > 0x80000000u ? ~bits : bits | 0x80000000u;
}
)glsl"
