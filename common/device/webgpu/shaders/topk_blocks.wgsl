R"wgsl(
// The columns of the TAKEN first numbers of each block of a row, in order; NOWHERE where a block has
// fewer. A lane has every 64th column of the block.
override TAKEN: u32;
override COLUMNS: u32;
override BLOCKS: u32;
const kBlock = 1024u;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> found: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  let block = group.y;
  let end = min(COLUMNS, (block + 1u) * kBlock);
  var own = 0.0f;
  var own_place = NOWHERE;
  var last = NOWHERE;
  for (var n = 0u; n < TAKEN; n++) {
    // Only the lane whose number was taken looks again, for what comes behind it.
    if (n == 0u || (own_place == last && last != NOWHERE)) {
      let taken = own;
      own_place = NOWHERE;
      for (var c = block * kBlock + lane; c < end; c += 64u) {
        let value = rank(x[row * COLUMNS + c]);
        let behind = n == 0u || before(taken, last, value, c);
        if (behind && before(value, c, own, own_place)) {
          own = value;
          own_place = c;
        }
      }
    }
    last = first_of(own, own_place, lane);
    if (lane == 0u) { found[(row * BLOCKS + block) * TAKEN + n] = last; }
  }
}
)wgsl"
