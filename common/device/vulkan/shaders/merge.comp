R"glsl(
// Joins the splits of a row. One workgroup a row.
layout(set = 0, binding = 2) writeonly buffer Result { RESULT result[]; };
#define TAKE(c, y) result[r * C + c] = RESULT(y);

void main() {
  const uint r = gl_WorkGroupID.x, lane = lane_index();
  if (r >= row_count()) return;
  MERGE_ROW(r, lane, TAKE)
}
)glsl"
