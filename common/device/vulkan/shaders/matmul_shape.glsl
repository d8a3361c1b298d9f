R"glsl(
layout(constant_id = 5) const uint K = 8;
layout(constant_id = 6) const uint LANES = 8;
layout(constant_id = 7) const uint BLOCK = 1;
layout(constant_id = 8) const uint COLUMNS_PER_LANE = 1;
layout(constant_id = 9) const uint UNROLL = 1;
layout(constant_id = 10) const uint W_TYPE = 0;    // 0: F32, 1: F16, 2: BF16
layout(constant_id = 11) const uint EXACT_ROWS = 0;  // rows when the recording fixes them, else 0
layout(set = 0, binding = W_BINDING) restrict readonly buffer W { uvec4 w[]; };

const uint CHUNKS = (K + 7) / 8;
const uint ROW_VECTORS = W_TYPE == 0 ? CHUNKS * 2 : CHUNKS;  // uvec4 in a row of w
const uint PER_CHUNK = W_TYPE == 0 ? 2 : 1;
const uint GROUPS = WORKGROUP / LANES;
const uint REACH = LANES < SUBGROUP ? LANES : SUBGROUP;  // lanes of an output in one subgroup
const uint SUMS = BLOCK * COLUMNS_PER_LANE;
shared float lane_sums[LANES > SUBGROUP ? SUMS * WORKGROUP : 1];

#ifdef STAGED
// The one row that stage() makes in each workgroup, in halves of chunks: a subgroup reads either
// without bank conflicts. BLOCK is 1.
shared vec4 x_low[CHUNKS];
shared vec4 x_high[CHUNKS];
void put_x(uint k, float value) {
  if ((k & 4u) == 0u) x_low[k >> 3][k & 3u] = value;
  else x_high[k >> 3][k & 3u] = value;
}
#else
layout(set = 0, binding = 1) restrict readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 1) restrict readonly buffer X4 { vec4 x4[]; };
vec4 load_x(uint row, uint k) {
  if (K % 4 == 0) {
    if (K % 8 == 0 || k < K) return x4[row * (K / 4) + k / 4];
    return vec4(0.0);
  }
  vec4 v = vec4(0.0);
  uint at = row * K + k;
  if (k < K) v.x = x1[at];
  if (k + 1 < K) v.y = x1[at + 1];
  if (k + 2 < K) v.z = x1[at + 2];
  if (k + 3 < K) v.w = x1[at + 3];
  return v;
}
#endif
)glsl"
