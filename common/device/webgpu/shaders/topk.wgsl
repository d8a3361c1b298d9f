R"wgsl(
// Joins the lists that topk_blocks found, or that this found before: 1024 / TAKEN of a row's LISTS to
// one. The last one of a row has its numbers and their columns.
override TAKEN: u32;
override COLUMNS: u32;
override LISTS: u32;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> joined: array<u32>;
@group(0) @binding(3) var<storage, read> found: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  let most = kSorted / TAKEN * TAKEN;
  let groups = (LISTS * TAKEN + most - 1u) / most;
  for (var i = lane; i < kSorted; i += 256u) {
    let at = group.y * most + i;
    let there = i < most && at < LISTS * TAKEN;
    let place = select(NOWHERE, found[row * LISTS * TAKEN + select(0u, at, there)], there);
    places[i] = place;
    best[i] = rank(x[row * COLUMNS + select(place, 0u, place == NOWHERE)]);
  }
  sort_best(lane);
  for (var n = lane; n < TAKEN; n += 256u) {
    if (groups > 1u) {
      joined[(row * groups + group.y) * TAKEN + n] = places[n];
    } else {
      joined[row * 2u * TAKEN + n] = bitcast<u32>(x[row * COLUMNS + places[n]]);
      joined[row * 2u * TAKEN + TAKEN + n] = bitcast<u32>(f32(places[n]));
    }
  }
}
)wgsl"
