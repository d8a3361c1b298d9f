R"glsl(
// Rounds rows to int8 for int8_rows.comp: of each segment 16 vectors of numbers, 8 scales and 8 sums.
layout(set = 0, binding = 2) restrict writeonly buffer Rounded { uvec4 rounded[]; };

void main() {
  const uint lane = gl_LocalInvocationIndex, r = gl_WorkGroupID.x;
  if (!has_row(r)) return;
  for (uint b = lane; b < SEGMENT_BLOCKS * SEGMENTS; b += WORKGROUP) {
    x_largest[b] = 0u;
    x_sums[b] = 0;
  }
  barrier();
  round_row(r, lane);
  barrier();
  for (uint i = lane; i < SEGMENT_VECTORS * SEGMENTS; i += WORKGROUP) {
    const uint segment = i / SEGMENT_VECTORS, v = i % SEGMENT_VECTORS;
    uvec4 vector;
    if (v < 16) {
      vector = x_numbers[v * SEGMENTS + segment];
    } else {
      [[unroll]] for (uint j = 0; j < 4; ++j) {
        const uint block = (v % 2 * 4 + j) * SEGMENTS + segment;
        vector[j] = v < 18 ? floatBitsToUint(x_scales[block]) : uint(x_sums[block]);
      }
    }
    rounded[r * SEGMENTS * SEGMENT_VECTORS + i] = vector;
  }
}
)glsl"
