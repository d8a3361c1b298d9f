R"glsl(
// Joins the splits of a row. One workgroup a row.
layout(set = 0, binding = 2) writeonly buffer Result { float result[]; };

void main() {
  const uint r = gl_WorkGroupID.x, lane = lane_index();
  if (r >= row_count()) return;
  weigh_splits(r, lane);
  const uint used = used_splits(r);
  FOR_ROW(C) result[r * C + c] = merged(r, c, used); END_ROW
}
)glsl"
