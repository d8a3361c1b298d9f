R"glsl(
// A causal convolution of rows by channels, and silu; keeps the rows in the state. A lane has a column of a row. The
// first rows of a run, which read rows of earlier steps, are one lane's, who then overwrites those.
layout(set = 0, binding = 3) readonly buffer X { float x[]; };
layout(set = 0, binding = 4) readonly buffer Weight { uint weights[]; };
layout(set = 0, binding = 5) writeonly buffer Result { float result[]; };

float taken(uint r, uint c) { return small(x[(r - piece.row_base) * STATE_WIDTH + c]); }

void main() {
  const uint c = gl_WorkGroupID.x * WORKGROUP + gl_LocalInvocationIndex;
  const uint own = piece.row_base + gl_WorkGroupID.y;
  if (gl_WorkGroupID.y >= row_count() || c >= STATE_WIDTH) return;
  const uint run = symbol(RUN_OF, own);
  const uint first = max(symbol(RUN_FIRST, run), piece.row_base);
  const uint end = min(run_end(run), piece.row_base + piece.row_piece);
  if (own > first && own < first + TAPS - 1) return;
  const uint ring = state_of(own) + TAKEN_AT + c;
  const uint own_end = own == first ? min(end, first + TAPS - 1) : own + 1;
  for (uint r = own; r < own_end; ++r) {
    const uint position = symbol(POSITIONS, r);
    float sum = 0.0;
    for (uint tap = 0; tap < TAPS; ++tap) {
      const uint back = TAPS - 1 - tap;
      if (position < back) continue;  // zeros before the text
      const float before = r - first >= back
                               ? taken(r - back, c)
                               : states[ring + (position - back) % TAKEN_ROWS * STATE_WIDTH];
      sum = sum + small(WIDE(weights, c * TAPS + tap, W_TYPE)) * before;
    }
    result[(r - piece.row_base) * STATE_WIDTH + c] = clean(silu_x(sum));
  }
  if (own > first) return;
  for (uint r = end - min(end - first, TAKEN_ROWS); r < end; ++r) {
    states[ring + symbol(POSITIONS, r) % TAKEN_ROWS * STATE_WIDTH] = taken(r, c);
  }
}
)glsl"
