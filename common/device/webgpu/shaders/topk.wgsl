R"wgsl(
// The TAKEN first numbers of a row and their columns, from the lists of its blocks (topk_blocks). A
// lane has every 64th list, and compares what they begin with.
override TAKEN: u32;
override COLUMNS: u32;
override BLOCKS: u32;
const kMostLists = 8u;  // of a lane
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
@group(0) @binding(3) var<storage, read> found: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  var next: array<u32, kMostLists>;
  var own = 0.0f;
  var own_place = NOWHERE;
  var own_list = 0u;
  var last = NOWHERE;
  for (var n = 0u; n < TAKEN; n++) {
    if (n == 0u || (own_place == last && last != NOWHERE)) {
      if (n > 0u) { next[own_list]++; }
      own_place = NOWHERE;
      for (var list = 0u; list < kMostLists && list * 64u + lane < BLOCKS; list++) {
        if (next[list] >= TAKEN) { continue; }
        let place = found[(row * BLOCKS + list * 64u + lane) * TAKEN + next[list]];
        if (place == NOWHERE) { continue; }
        let value = rank(x[row * COLUMNS + place]);
        if (before(value, place, own, own_place)) {
          own = value;
          own_place = place;
          own_list = list;
        }
      }
    }
    last = first_of(own, own_place, lane);
    if (lane == 0u) {
      result[row * 2u * TAKEN + n] = x[row * COLUMNS + last];
      result[row * 2u * TAKEN + TAKEN + n] = f32(last);
    }
  }
}
)wgsl"
