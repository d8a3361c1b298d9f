R"glsl(
// The largest of each block of a row. One workgroup for 32 blocks, WORKGROUP / 32 lanes for each.
layout(set = 0, binding = 2) writeonly buffer Maxima { uint maxima[]; };
shared uint found[WORKGROUP];

void main() {
  const uint r = gl_WorkGroupID.y, lane = gl_LocalInvocationIndex;
  if (r >= row_count()) return;
  const uint block = gl_WorkGroupID.x * 32 + lane % 32;
  uint largest = 0;
  for (uint c = block + lane / 32 * BLOCKS; c < COLUMNS; c += WORKGROUP / 32 * BLOCKS) {
    largest = max(largest, order(x[r * COLUMNS + c]));
  }
  found[lane] = largest;
  barrier();
  if (lane >= 32) return;
  for (uint i = lane + 32; i < WORKGROUP; i += 32) largest = max(largest, found[i]);
  maxima[r * BLOCKS + block] = largest;
}
)glsl"
