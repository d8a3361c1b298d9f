R"wgsl(
// The TAKEN largest of a row and their columns, the largest first, of equal ones the lower column. A
// lane has every 64th column. Each turn takes what comes next behind the one before.
override TAKEN: u32;
override COLUMNS: u32;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
var<workgroup> best: array<f32, 64>;
var<workgroup> places: array<u32, 64>;

// What a number is ordered by: one that is not finite stands first.
fn rank(value: f32) -> f32 {
  let finite = (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
  return select(3.402823466e38f, value, finite);
}
fn before(a: f32, at: u32, b: f32, bt: u32) -> bool { return a > b || (a == b && at < bt); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  var last = 0.0f;
  var last_place = COLUMNS;
  // A lane's next ones. Only the lane whose number was taken looks again.
  var own = 0.0f;
  var own_place = COLUMNS;
  for (var n = 0u; n < TAKEN; n++) {
    if (n == 0u || own_place == last_place) {
      own_place = COLUMNS;
      for (var c = lane; c < COLUMNS; c += 64u) {
        let value = rank(x[row * COLUMNS + c]);
        let behind = n == 0u || before(last, last_place, value, c);
        if (behind && (own_place == COLUMNS || before(value, c, own, own_place))) {
          own = value;
          own_place = c;
        }
      }
    }
    best[lane] = own;
    places[lane] = own_place;
    workgroupBarrier();
    for (var apart = 32u; apart > 0u; apart >>= 1u) {
      if (lane < apart) {
        let other = lane + apart;
        let takes = places[other] < COLUMNS &&
                    (places[lane] == COLUMNS ||
                     before(best[other], places[other], best[lane], places[lane]));
        if (takes) {
          best[lane] = best[other];
          places[lane] = places[other];
        }
      }
      workgroupBarrier();
    }
    last = best[0];
    last_place = places[0];
    if (lane == 0u) {
      result[row * 2u * TAKEN + n] = x[row * COLUMNS + last_place];
      result[row * 2u * TAKEN + TAKEN + n] = f32(last_place);
    }
    workgroupBarrier();
  }
}
)wgsl"
