R"glsl(
// The largest of each block of a row, a team for each.
layout(set = 0, binding = 2) writeonly buffer Maxima { uint maxima[]; };
shared uint found[WORKGROUP];

void main() {
  const uint r = gl_WorkGroupID.y, lane = gl_LocalInvocationIndex;
  if (r >= row_count()) return;
  const uint block = gl_WorkGroupID.x * (WORKGROUP / TOP_TEAM) + lane / TOP_TEAM;
  uint largest = 0;
  for (uint first = lane % TOP_TEAM; first < EACH; first += TOP_TEAM * AT_ONCE) {
    uint bits[AT_ONCE];
    [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) bits[i] = bits_of(r, block, first + i * TOP_TEAM);
    [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
      largest = max(largest, order_in(block, first + i * TOP_TEAM, bits[i]));
    }
  }
  found[lane] = largest;
  [[unroll]] for (uint reach = TOP_TEAM / 2; reach > 0; reach /= 2) {
    barrier();
    if (lane % TOP_TEAM < reach) found[lane] = max(found[lane], found[lane + reach]);
  }
  if (lane % TOP_TEAM == 0) maxima[r * TOP_BLOCKS + block] = found[lane];
}
)glsl"
