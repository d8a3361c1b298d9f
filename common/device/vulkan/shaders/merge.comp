R"glsl(
// Joins the splits of a row. One workgroup a row.
layout(set = 0, binding = 2) writeonly buffer Result { float result[]; };

void main() {
  const uint r = gl_WorkGroupID.x;
  if (r >= row_count()) return;
  weigh_splits(r, gl_LocalInvocationIndex);
  for (uint c = gl_LocalInvocationIndex; c < C; c += WORKGROUP) result[r * C + c] = merged(r, c);
}
)glsl"
