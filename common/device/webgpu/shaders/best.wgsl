R"wgsl(
// The first of numbers at their columns: the largest, of equal ones the lower column.
const NOWHERE = 0xffffffffu;
var<workgroup> best: array<f32, 64>;
var<workgroup> places: array<u32, 64>;

// What a number is ordered by: one that is not finite stands first.
fn rank(value: f32) -> f32 {
  let finite = (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
  return select(3.402823466e38f, value, finite);
}
fn before(a: f32, at: u32, b: f32, bt: u32) -> bool {
  return at != NOWHERE && (bt == NOWHERE || a > b || (a == b && at < bt));
}
// The column of the first of all lanes' numbers.
fn first_of(own: f32, place: u32, lane: u32) -> u32 {
  best[lane] = own;
  places[lane] = place;
  workgroupBarrier();
  for (var apart = 32u; apart > 0u; apart >>= 1u) {
    if (lane < apart) {
      let other = lane + apart;
      if (before(best[other], places[other], best[lane], places[lane])) {
        best[lane] = best[other];
        places[lane] = places[other];
      }
    }
    workgroupBarrier();
  }
  let found = places[0];
  workgroupBarrier();
  return found;
}
)wgsl"
