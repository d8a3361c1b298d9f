R"glsl(
// A row of a product, from its slot or as stage() makes it.
#ifdef STAGED
// The one row that stage() makes in each workgroup, in halves of chunks: a subgroup reads either
// without bank conflicts. BLOCK is 1.
shared vec4 x_low[CHUNKS];
shared vec4 x_high[CHUNKS];
void put_four(uint four, vec4 value) {
  if ((four & 1u) == 0u) x_low[four >> 1] = value;
  else x_high[four >> 1] = value;
}
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
