R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k] by a row rounded to int8 and a matrix in blocks, then the tape
// of the step (finish()). A lane has a segment of a column, which lies in LaneOrder by segments: the
// chain of its 8 blocks, each a whole number times both scales. A column's segments are a chain, too:
// the order of the profile int8 on every device. A workgroup rounds its one row, and has COLUMNS_PER_GROUP
// columns, of a pair one behind the other.
layout(set = 0, binding = W_BINDING) restrict readonly buffer Vectors { uvec4 w[]; };
layout(set = 0, binding = SCALES_BINDING) restrict readonly buffer Fours { uvec4 scale_fours[]; };
#ifdef TWIN
layout(set = 0, binding = TWIN_BINDING) restrict readonly buffer TwinVectors { uvec4 twin_w[]; };
layout(set = 0, binding = TWIN_SCALES_BINDING) restrict readonly buffer TwinFours { uvec4 twin_scale_fours[]; };
#endif
const uint SEGMENT_BLOCKS = 8;
const uint SEGMENTS = (K + 32 * SEGMENT_BLOCKS - 1) / (32 * SEGMENT_BLOCKS);
const uint VECTORS = IN_BYTES ? 16 : 8;  // of a segment
const uint ITEMS = COLUMNS_PER_GROUP * SEGMENTS;
const uint ENDS = COLUMNS_PER_GROUP / EACH;
// The row: vectors of 16 numbers and blocks of a segment, each for all segments.
shared uvec4 x_numbers[16 * SEGMENTS];
shared float x_scales[SEGMENT_BLOCKS * SEGMENTS];
shared uint x_largest[SEGMENT_BLOCKS * SEGMENTS];
shared int x_sums[SEGMENT_BLOCKS * SEGMENTS];
shared float segments[ITEMS];

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

// Rounds the row: 8 numbers of a lane at a time.
const uint X_CHUNKS = SEGMENTS * SEGMENT_BLOCKS * 4;
const uint X_ROUNDS = (X_CHUNKS + WORKGROUP - 1) / WORKGROUP;
#define FOR_CHUNKS \
  [[unroll]] for (uint i = 0; i < X_ROUNDS; ++i) { \
    const uint c = i * WORKGROUP + lane, segment = c / (4 * SEGMENT_BLOCKS), b = c / 4 % SEGMENT_BLOCKS; \
    const uint block = b * SEGMENTS + segment; \
    if (c < X_CHUNKS)
uint magnitude(float v) { return floatBitsToUint(v) & 0x7fffffffu; }
uint largest_of(vec4 v) {
  return max(max(magnitude(v.x), magnitude(v.y)), max(magnitude(v.z), magnitude(v.w)));
}
void round_row(uint row, uint lane) {
  vec4 low[X_ROUNDS], high[X_ROUNDS];
  FOR_CHUNKS {
#ifdef STAGED
      low[i] = c < CHUNKS ? x_low[c] : vec4(0.0);
      high[i] = c < CHUNKS ? x_high[c] : vec4(0.0);
#else
      low[i] = c < CHUNKS ? load_x(row, c * 8) : vec4(0.0);
      high[i] = c < CHUNKS ? load_x(row, c * 8 + 4) : vec4(0.0);
#endif
      atomicMax(x_largest[block], max(largest_of(low[i]), largest_of(high[i])));
    }
  }
  barrier();
  FOR_CHUNKS {
      const int largest = int(x_largest[block]);
      const float inverse = block_inverse_f(largest);
      int sum = 0;
      uvec2 words = uvec2(0u);
      [[unroll]] for (uint j = 0; j < 8; ++j) {
        const int q = block_number_f(j < 4 ? low[i][j % 4] : high[i][j % 4], inverse);
        sum += q;
        // Numbers by nibbles are taken two apart: the even ones of a chunk, then the odd ones.
        const uint at = IN_BYTES ? j : j / 2 + (j & 1u) * 4;
        words[at / 4] |= (uint(q) & 255u) << 8 * (at % 4);
      }
      const uint part = c % 4;  // of its block
      if (IN_BYTES) {
        const uint vector = (2 * b + part / 2) * SEGMENTS + segment;
        x_numbers[vector][part % 2 * 2] = words.x;
        x_numbers[vector][part % 2 * 2 + 1] = words.y;
      } else {
        x_numbers[2 * b * SEGMENTS + segment][part] = words.x;
        x_numbers[(2 * b + 1) * SEGMENTS + segment][part] = words.y;
      }
      if (part == 0) x_scales[block] = block_scale_f(largest);
      atomicAdd(x_sums[block], sum);
    }
  }
}

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
      to.w[v] = OF_MATRIX(which, w, (column * VECTORS + v) * SEGMENTS + s); \
    } \
    [[unroll]] for (uint v = 0; v < 2; ++v) { \
      to.scales[v] = OF_MATRIX(which, scale_fours, (column * 2 + v) * SEGMENTS + s); \
    } \
  }
float half_in(uint word) { return uintBitsToFloat(word & 0xffffe000u); }
float sum_of(Segment of, uint segment) {
  float sum = 0.0;
  [[unroll]] for (uint b = 0; b < SEGMENT_BLOCKS; ++b) {
    const uint block = b * SEGMENTS + segment;
    const uvec4 x = x_numbers[2 * b * SEGMENTS + segment];
    const uvec4 other = x_numbers[(2 * b + 1) * SEGMENTS + segment];
    const float x_scale = x_scales[block];
    const uint word = of.scales[b / 4][b % 4];
    if (IN_BYTES) {
      const int low = dot_of_vectors(of.w[2 * b % VECTORS], x);
      const int high = dot_of_vectors(of.w[(2 * b + 1) % VECTORS], other);
      if (W_TYPE == 5) {
        const int all = low * (int(word << 8) >> 24) + high * (int(word) >> 24);
        sum = sum + float(all) * (half_of(word) * x_scale);
      } else {
        sum = sum + float(low + high) * (uintBitsToFloat(word) * x_scale);
      }
    } else {
      const uvec4 both = of.w[b % VECTORS];
      const int dot = dot_of_vectors(both & 0x0f0f0f0fu, x) + dot_of_vectors(both >> 4 & 0x0f0f0f0fu, other);
      if (W_TYPE == 6) {
        const uint beside = of.scales[b / 4][(b ^ 1u) % 4];
        const float d = half_in((b & 1u) == 0u ? word : beside), dmin = half_in((b & 1u) == 0u ? beside : word);
        sum = sum + (dmin * float(word >> 6 & 63u)) * -(x_scale * float(x_sums[block]));
        sum = sum + float(dot) * ((d * float(word & 63u)) * x_scale);
      } else {
        sum = sum + float(dot - 8 * x_sums[block]) * (uintBitsToFloat(word) * x_scale);
      }
    }
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
