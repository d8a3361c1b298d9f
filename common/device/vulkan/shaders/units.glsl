R"glsl(
// Shapes of the products by matrix units: x [rows, K] and w [columns, K] are halves, K is a multiple
// of 16, sums are floats. Dimensions are named LM, LN and LK because the use of a matrix is read off
// its dimensions' names (spirv.cpp).
layout(constant_id = 5) const uint K = 16;
layout(constant_id = 12) const uint LM = 16;
layout(constant_id = 13) const uint LN = 16;
layout(constant_id = 14) const uint LK = 16;
layout(constant_id = 15) const uint TILES_M = 2;  // tiles of 16 x 16 that a subgroup has
layout(constant_id = 16) const uint TILES_N = 2;
layout(constant_id = 18) const uint PARTS_N = 4;  // subgroups along the columns
#define SUM fcoopmatNV<32, gl_ScopeSubgroup, LM, LN>
#define HALF_SUM fcoopmatNV<16, gl_ScopeSubgroup, LM, LN>
layout(set = 0, binding = 1) restrict readonly buffer X { uvec4 x[]; };
layout(set = 0, binding = W_BINDING) restrict readonly buffer W { uvec4 w[]; };
const uint CHUNKS = K / 8;  // uvec4 of a row, 8 halves each
#ifdef FEW
const uint FETCHES = (LM * LN * TILES_M * TILES_N * PARTS_N + WORKGROUP - 1) / WORKGROUP;
#else
#define FETCHES 1
#endif
)glsl"
