R"glsl(
// Puts the rows' keys and values into their pages. One workgroup a row.
layout(set = 0, binding = 1) readonly buffer Qkv { float qkv[]; };

void main() {
  const uint r = gl_WorkGroupID.x;
  if (!has_row(r)) return;
  prepare_put(0, piece.row_base + r);
  for (uint c = C + gl_LocalInvocationIndex; c < QKV; c += WORKGROUP) {
    put_kv(0, c, qkv[r * QKV + c]);
  }
}
)glsl"
