R"glsl(
// COLUMNS of each row, COUNT of each head from Q_FIRST on.
layout(set = 0, binding = 1) readonly buffer X { float x[]; };
layout(set = 0, binding = 2) writeonly buffer Result { float result[]; };

void main() {
  const uint r = gl_WorkGroupID.x;
  if (!has_row(r)) return;
  for (uint c = gl_LocalInvocationIndex; c < COLUMNS; c += WORKGROUP) {
    result[r * COLUMNS + c] = x[r * Q_STRIDE + c / COUNT * D + Q_FIRST + c % COUNT];
  }
}
)glsl"
