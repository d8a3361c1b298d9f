R"glsl(
// Where a product's numbers are read from, and the lanes' sums.
#ifdef IN_BLOCKS
// Eight rows take chunks one by one, for fewer registers.
layout(set = 0, binding = W_BINDING) restrict readonly buffer Vectors { uvec4 w[]; };
layout(set = 0, binding = SCALES_BINDING) restrict readonly buffer Twos { uvec2 scale_twos[]; };
layout(set = 0, binding = SCALES_BINDING) restrict readonly buffer Fours { uvec4 scale_fours[]; };
#ifdef TWIN
layout(set = 0, binding = TWIN_BINDING) restrict readonly buffer TwinVectors { uvec4 twin_w[]; };
layout(set = 0, binding = TWIN_SCALES_BINDING) restrict readonly buffer TwinTwos { uvec2 twin_scale_twos[]; };
layout(set = 0, binding = TWIN_SCALES_BINDING) restrict readonly buffer TwinFours { uvec4 twin_scale_fours[]; };
#endif
const uint TAKES = BLOCK == 8 ? 1 : SIDE;
const uint ROW_VECTORS = ROW_BLOCKS * 4 / SIDE;  // uvec4 in a row of w
const uint PER_CHUNK = 1;
uvec4 scales_of_vector(uint which, uint at) {
  if (IN_BYTES) return uvec4(OF_MATRIX(which, scale_twos, at), 0u, 0u);
  return OF_MATRIX(which, scale_fours, at);
}
// Lane t's chunk of a round by itself.
uvec3 chunk_of_w(uint which, uint column, uint round, uint t) {
  if (round >= BY_SIDE) return chunk_at(which, column, min(round * LANES + t, CHUNKS - 1), true);
  return chunk_at(which, column, (round / SIDE * LANES + t) * SIDE + round % SIDE, false);
}
// Lane t's chunk g of a vector; the lane has the same part of each block. `beside`: scales of the
// vector of the blocks beside these.
uvec3 chunk_in(uvec4 vector, uvec4 scales, uvec4 beside, uint g, uint t) {
  if (IN_BYTES) return uvec3(g == 0 ? vector.xy : vector.zw, scale_bits(scales[g], t));
  return uvec3(vector[g], W_TYPE == 6 ? beside[g] : 0u, scales[g]);
}
#else
const uint TAKES = 1;
layout(set = 0, binding = W_BINDING) restrict readonly buffer W { uvec4 w[]; };
#ifdef TWIN
layout(set = 0, binding = TWIN_BINDING) restrict readonly buffer TwinW { uvec4 twin_w[]; };
#endif
const uint ROW_VECTORS = W_TYPE == 0 ? CHUNKS * 2 : CHUNKS;  // uvec4 in a row of w
const uint PER_CHUNK = W_TYPE == 0 ? 2 : 1;
#endif
const uint GROUPS = WORKGROUP / LANES;
const uint REACH = LANES < SUBGROUP ? LANES : SUBGROUP;  // lanes of an output in one subgroup
const uint SUMS = BLOCK * COLUMNS_PER_LANE;
shared float lane_sums[LANES > SUBGROUP ? SUMS * WORKGROUP : 1];
)glsl"
