R"glsl(
// The states of sequences (tensor/state_shape.h), and the runs of rows that go through them: rows of one sequence at
// positions that follow each other.
layout(set = 0, binding = 1) readonly buffer Slots { uint slots[]; };  // by sequence: which state
layout(set = 0, binding = 2) buffer States { float states[]; };
const uint STATE_WIDTH = 2 * KEY_HEADS * KEY_DIM + KEY_HEADS * HEAD_GROUP * VALUE_DIM;
uint state_of(uint row) { return slots[symbol(SEQUENCES, row)] * STATE_FLOATS; }
// Number i of a weight of a type.
float wide_half(uint bits, uint type) {
  if (type == 2) return uintBitsToFloat(bits << 16);
  const uint sign = (bits & 0x8000u) << 16, size = bits & 0x7fffu;
  if (size < 0x400u) return (sign != 0u ? -1.0 : 1.0) * (float(size) * 5.9604644775390625e-8);
  return uintBitsToFloat(sign | (size < 0x7c00u ? (size << 13) + 0x38000000u : 0x7fc00000u));
}
#define WIDE(words, i, type) \
  ((type) == 0 ? uintBitsToFloat(words[i]) : wide_half(words[(i) / 2] >> 16 * ((i) & 1u) & 0xffffu, type))
uint run_end(uint run) {
  return run + 1 < symbols[COUNT_OF_RUNS] ? symbol(RUN_FIRST, run + 1) : symbols[ROW_COUNT];
}
)glsl"
