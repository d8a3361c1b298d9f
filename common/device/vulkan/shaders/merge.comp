R"glsl(
// Joins the splits of a row. One workgroup a row.
layout(set = 0, binding = 2) writeonly buffer Result { RESULT result[]; };
#define TAKE(four, y) \
  [[unroll]] for (uint j = 0; j < 4; ++j) { \
    if (C % 4 == 0 || four * 4 + j < C) result[r * C + four * 4 + j] = RESULT(y[j]); \
  }

void main() {
  const uint r = gl_WorkGroupID.x, lane = lane_index();
  if (r >= row_count()) return;
  const uvec2 used = seen_splits(piece.row_base + r);
  MERGE_ROW(r, lane, used, TAKE)
}
)glsl"
