R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k] by a row rounded to int8 and a matrix in blocks, then the tape
// of the step (finish()). A lane has a segment of a column, which lies in LaneOrder by segments: the
// chain of its 8 blocks, each a whole number times both scales. A column's segments are a chain, too:
// the order of the profile int8 on every device. A workgroup rounds its one row, and has COLUMNS_PER_GROUP
// columns, of a pair one behind the other.
const uint ITEMS = COLUMNS_PER_GROUP * SEGMENTS;
const uint ENDS = COLUMNS_PER_GROUP / EACH;
shared float segments[ITEMS];

// A segment of a column, with zeros past the last one's end.
struct Segment {
  uvec4 w[VECTORS], scales[2];
};
#define LOAD_SEGMENT(to, item) \
  { \
    const uint position = gl_WorkGroupID.y * COLUMNS_PER_GROUP + (item) / SEGMENTS; \
    const uint which = position % EACH, column = column_of(position / EACH, which); \
    const uint s = (item) % SEGMENTS; \
    [[unroll]] for (uint v = 0; v < VECTORS; ++v) { \
      to.w[v] = OF_MATRIX(which, w, vector_at(column, s, v)); \
    } \
    [[unroll]] for (uint v = 0; v < 2; ++v) { \
      to.scales[v] = OF_MATRIX(which, scale_fours, scales_at(column, s, v)); \
    } \
  }
float sum_of(Segment of, uint segment) {
  float sum = 0.0;
  [[unroll]] for (uint b = 0; b < SEGMENT_BLOCKS; ++b) {
    const uint block = b * SEGMENTS + segment;
    const uvec4 first = of.w[IN_BYTES ? 2 * b : b], second = of.w[IN_BYTES ? 2 * b + 1 : b];
    const int low = dot_of_vectors(IN_BYTES ? first : first & 0x0f0f0f0fu,
                                   x_numbers[2 * b * SEGMENTS + segment]);
    const int high = dot_of_vectors(IN_BYTES ? second : second >> 4 & 0x0f0f0f0fu,
                                    x_numbers[(2 * b + 1) * SEGMENTS + segment]);
    const uvec4 words = of.scales[b / 4];
    sum = with_block(sum, low, high, words[b % 4], words[(b ^ 1u) % 4], (b & 1u) != 0u, x_scales[block],
                     x_sums[block]);
  }
  return sum;
}

void main() {
  const uint lane = lane_index(), row = gl_WorkGroupID.x;
  if (!has_row(row)) return;
  // The first segments are on their way while the row is made and rounded, behind the row's own loads.
  const uint first_end = gl_WorkGroupID.y * ENDS;
#ifdef STAGED
  fetch_stage(row, lane);
#endif
  Segment own;
  LOAD_SEGMENT(own, min(lane, ITEMS - 1))
  if (lane < ENDS && first_end + lane < RESULTS) fetch_result(0, row, first_end + lane);
  for (uint b = lane; b < SEGMENT_BLOCKS * SEGMENTS; b += WORKGROUP) {
    x_largest[b] = 0u;
    x_sums[b] = 0;
  }
#ifdef STAGED
  if (lane < CHUNKS * 8 - STAGED) put_x(STAGED + lane, 0.0);
  stage(row, lane);
#endif
  barrier();
  round_row(row, lane);
  barrier();
  for (uint item = lane; item < ITEMS; item += WORKGROUP) {
    if (item >= WORKGROUP) LOAD_SEGMENT(own, item)
    segments[item] = sum_of(own, item % SEGMENTS);
  }
  barrier();
  if (lane < ENDS && first_end + lane < RESULTS) {
    float sums[EACH];
    [[unroll]] for (uint e = 0; e < EACH; ++e) {
      sums[e] = 0.0;
      for (uint s = 0; s < SEGMENTS; ++s) sums[e] = sums[e] + segments[(lane * EACH + e) * SEGMENTS + s];
    }
    finish_result(0, row, first_end + lane, sums[0], sums[EACH - 1]);
  }
}
)glsl"
