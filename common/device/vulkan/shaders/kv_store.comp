R"glsl(
// Puts the rows' keys and values into their pages. One workgroup a row.
layout(set = 0, binding = 1) readonly buffer KeyRows { float keys[]; };
layout(set = 0, binding = 2) readonly buffer ValueRows { float values[]; };

void main() {
  const uint r = gl_WorkGroupID.x;
  if (!has_row(r)) return;
  prepare_put(0, piece.row_base + r);
  for (uint c = gl_LocalInvocationIndex; c < KV_WIDTH; c += WORKGROUP) {
    put_key(0, c, keys[r * K_STRIDE + K_FIRST + c]);
    put_value(0, c, values[r * V_STRIDE + V_FIRST + c]);
  }
}
)glsl"
