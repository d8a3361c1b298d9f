R"wgsl(
// The columns of the TAKEN first numbers of each block of a row, in order; NOWHERE where a block has
// fewer.
override TAKEN: u32;
override COLUMNS: u32;
override BLOCKS: u32;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  for (var i = lane; i < kSorted; i += 256u) {
    let c = group.y * kSorted + i;
    places[i] = select(NOWHERE, c, c < COLUMNS);
    best[i] = rank(x[row * COLUMNS + min(c, COLUMNS - 1u)]);
  }
  sort_best(lane);
  for (var n = lane; n < TAKEN; n += 256u) { found[(row * BLOCKS + group.y) * TAKEN + n] = places[n]; }
}
)wgsl"
