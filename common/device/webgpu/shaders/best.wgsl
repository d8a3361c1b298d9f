R"wgsl(
// The first of up to 1,024 numbers at their columns: the largest, of equal ones the lower column.
const NOWHERE = 0xffffffffu;
const kSorted = 1024u;
var<workgroup> best: array<f32, kSorted>;
var<workgroup> places: array<u32, kSorted>;

// What a number is ordered by: one that is not finite stands first.
fn rank(value: f32) -> f32 {
  let finite = (bitcast<u32>(value) & 0x7f800000u) != 0x7f800000u;
  return select(3.402823466e38f, value, finite);
}
fn before(a: f32, at: u32, b: f32, bt: u32) -> bool {
  return at != NOWHERE && (bt == NOWHERE || a > b || (a == b && at < bt));
}
// Sorts what 256 lanes have put there (bitonic).
fn sort_best(lane: u32) {
  workgroupBarrier();
  for (var run = 2u; run <= kSorted; run <<= 1u) {
    for (var apart = run >> 1u; apart > 0u; apart >>= 1u) {
      for (var i = lane; i < kSorted / 2u; i += 256u) {
        let a = 2u * i - (i & (apart - 1u));
        let b = a + apart;
        if (before(best[b], places[b], best[a], places[a]) == ((a & run) == 0u)) {
          let value = best[a];
          let place = places[a];
          best[a] = best[b];
          places[a] = places[b];
          best[b] = value;
          places[b] = place;
        }
      }
      workgroupBarrier();
    }
  }
}
)wgsl"
