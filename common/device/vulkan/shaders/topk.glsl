R"glsl(
// Functions that both kernels of the top k share. A row is cut into blocks of columns that follow one
// another. The k largest are in blocks whose maximum is among the k largest maxima.
const uint EACH = (COLUMNS + TOP_BLOCKS - 1) / TOP_BLOCKS;
const uint AT_ONCE = 8;  // loads of a lane that are on their way together
layout(set = 0, binding = 1) readonly buffer X { uint x[]; };

// Column i of a block, or some other column when the block has none: a load behind a condition waits
// for those before it.
uint bits_of(uint row, uint block, uint i) {
  return x[row * COLUMNS + min(block * EACH + i, COLUMNS - 1)];
}
// Bits of a float as a number that orders like it; what is not finite is largest, 0 is nobody's.
uint order(uint bits) {
  const uint ordered = bits ^ (uint(int(bits) >> 31) | 0x80000000u);
  const uint with_zero = mix(ordered, 0x80000000u, bits == 0x80000000u);  // -0 is 0
  return mix(with_zero, 0xffffffffu, (bits & 0x7f800000u) == 0x7f800000u);
}
uint order_in(uint block, uint i, uint bits) {
  return mix(0u, order(bits), i < EACH && block * EACH + i < COLUMNS);
}
)glsl"
