R"glsl(
// The start of every kernel, behind the constants that it names. Binding 0 is the same in all.
const uint SUBGROUPS = WORKGROUP / SUBGROUP;
#ifndef UNITS
#define FINISHES 1
#endif
#define FETCHES FINISHES  // elements of a product, or pairs, that a lane fetches for before it finishes them
// A row is summed in 256 chains, element c in chain c % 256, whatever the lanes: SUM_LANES of a workgroup have
// LANE_CHAINS each, lane, lane + SUM_LANES and so on. For each element c of this lane, of its chain j, in order:
// FOR_ROW(width) { ... } END_ROW
const uint ROW_CHAINS = 256;
const uint LANE_CHAINS = ROW_CHAINS / SUM_LANES;
#define SUMS_ROW (SUM_LANES == WORKGROUP || lane < SUM_LANES)
#define FOR_ROW(width) \
  if (SUMS_ROW) for (uint first = lane; first < (width); first += ROW_UNROLL * ROW_CHAINS) { \
    [[unroll]] for (uint i = 0; i < LANE_CHAINS * ROW_UNROLL; ++i) { \
      const uint j = i % LANE_CHAINS, c = first + i * SUM_LANES; \
      if (c < (width))
#define END_ROW \
    } \
  }
// Likewise where lanes have all of their elements at hand: HELD<base> each.
#define FOR_HELD(base) \
  if (SUMS_ROW) { \
    [[unroll]] for (uint i = 0; i < HELD##base; ++i) { \
      const uint j = i % LANE_CHAINS, c = lane + i * SUM_LANES; \
      if ((i + 1) * SUM_LANES <= K || c < K)

// A dispatch covers rows [row_base, row_base + row_piece) of the step and columns
// [column_base, column_base + column_piece) of a matrix; buffers with a row of the step per row are
// bound at row_base.
layout(push_constant) uniform Piece {
  uint row_base;
  uint row_piece;
  uint column_base;
  uint column_piece;
} piece;

// The step, as numbers.def lays it out.
layout(set = 0, binding = 0) restrict readonly buffer Symbols { uint symbols[]; };
uint symbol(uint which, uint row) { return symbols[HEADER_WORDS + which * CAPACITY + row]; }
// The rows of this dispatch.
uint row_count() {
  uint rows = symbols[ROW_COUNT];
  return rows > piece.row_base ? min(rows - piece.row_base, piece.row_piece) : 0u;
}
// Whether the first row of a workgroup is one of them. Where there are no more workgroups than rows
// need nothing waits for the symbols; of kernels for any number of rows there never are.
bool has_row(uint r) { return COUNTED || r < row_count(); }

#ifdef SHUFFLE
uint lane_index() { return gl_SubgroupID * SUBGROUP + gl_SubgroupInvocationID; }
#else
uint lane_index() { return gl_LocalInvocationIndex; }
#endif
// Joins all of an array into its first: neighbours, then pairs of pairs. By literal numbers: in a loop
// over `step` an array may not be kept in registers.
#define JOIN_STEP(array, count, JOIN, step) \
  [[unroll]] for (uint i = 0; i + step < count; i += 2 * step) { \
    array[i] = JOIN(array[i], array[i + step]); \
  }
#define JOIN_IN_PAIRS(array, count, JOIN) \
  JOIN_STEP(array, count, JOIN, 1) JOIN_STEP(array, count, JOIN, 2) \
  JOIN_STEP(array, count, JOIN, 4) JOIN_STEP(array, count, JOIN, 8) \
  JOIN_STEP(array, count, JOIN, 16) JOIN_STEP(array, count, JOIN, 32) \
  JOIN_STEP(array, count, JOIN, 64)
// The same, the far ones first: i and i + count / 2, then count / 4, and so on.
#define JOIN_HALF(array, count, JOIN, half_count) \
  [[unroll]] for (uint i = 0; i < half_count && i + half_count < count; ++i) { \
    array[i] = JOIN(array[i], array[i + half_count]); \
  }
#define JOIN_HALVES(array, count, JOIN) \
  JOIN_HALF(array, count, JOIN, 128) JOIN_HALF(array, count, JOIN, 64) \
  JOIN_HALF(array, count, JOIN, 32) JOIN_HALF(array, count, JOIN, 16) \
  JOIN_HALF(array, count, JOIN, 8) JOIN_HALF(array, count, JOIN, 4) \
  JOIN_HALF(array, count, JOIN, 2) JOIN_HALF(array, count, JOIN, 1)
#define PLUS(a, b) ((a) + (b))
float lane_xor(float value, uint offset) {
#ifdef SHUFFLE
  return subgroupShuffleXor(value, offset);
#else
  return value;
#endif
}
// Returns the value of another lane of the subgroup.
float lane_value(float value, uint lane) {
#ifdef SHUFFLE
  return subgroupShuffle(value, lane % SUBGROUP);
#else
  return value;
#endif
}
)glsl"
