R"glsl(
// A row in int8, as products take it: cut into segments of 8 blocks of 32 numbers.
const uint SEGMENT_BLOCKS = 8;
const uint SEGMENTS = (K + 32 * SEGMENT_BLOCKS - 1) / (32 * SEGMENT_BLOCKS);

#ifdef ROUNDS
// The row: vectors of 16 numbers and blocks of a segment, each for all segments.
shared uvec4 x_numbers[16 * SEGMENTS];
shared float x_scales[SEGMENT_BLOCKS * SEGMENTS];
shared uint x_largest[SEGMENT_BLOCKS * SEGMENTS];
shared int x_sums[SEGMENT_BLOCKS * SEGMENTS];

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
#endif
)glsl"
