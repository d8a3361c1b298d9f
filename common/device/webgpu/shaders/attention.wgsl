R"wgsl(
// Attention of a row's head over the keys that the row sees, which lie in pages of 16 positions: page
// p of a cache has rows [16 p, 16 p + 16) of KV_WIDTH channels, F32 or pairs of halves. A workgroup
// takes 256 keys at a time: one a lane for the scores, then lane (g, c) adds 4 channels of every
// (256 / WIDE)th of their values. The order of sums depends on the keys and D alone. begin() makes the
// row's query, key_at and value_at read the caches (attention_rows.wgsl, attention_row.wgsl).
override HEADS: u32;
override KV_HEADS: u32;
override D: u32;  // channels of a head, at most 256
override WIDE: u32;  // the power of two that is at least D / 4
override WINDOW: u32;
override BOTH_WAYS: bool;
override BIASED: bool;
override KV_TYPE: u32;  // 0 F32, 1 F16
override SCALE: f32;
override CAP: f32;  // 0: none
@group(0) @binding(1) var<storage, read_write> result: array<f32>;
const kKeys = 256u;
var<workgroup> query: array<vec4<f32>, 64>;
var<workgroup> exchange: array<f32, kKeys>;
var<workgroup> weighed: array<f32, kKeys>;
var<workgroup> places: array<u32, kKeys>;  // of a key's first channel
var<workgroup> parts: array<vec4<f32>, kKeys>;

fn four_of(low: vec2<u32>, high: vec2<u32>) -> vec4<f32> {
  if (KV_TYPE == 0u) { return bitcast<vec4<f32>>(vec4<u32>(low, high)); }
  return vec4<f32>(unpack2x16float(low.x), unpack2x16float(low.y));
}
fn one_of(pair: vec2<u32>, at: u32) -> f32 {
  if (KV_TYPE == 0u) { return bitcast<f32>(pair[at & 1u]); }
  return unpack2x16float(pair[(at >> 1u) & 1u])[at & 1u];
}
// at0 and at1: channels [4 c, 4 c + 4) of the keys' and the values' head whose first is at `at`, 0
// past its end.
#each m 2
fn at$m(at: u32, c: u32) -> vec4<f32> {
  if (D % 4u == 0u) {
    let first = (at + 4u * c) / select(2u, 4u, KV_TYPE == 1u);
    return four_of(cache$m[first], cache$m[first + 1u - KV_TYPE]);
  }
  var four = vec4<f32>();
  for (var j = 0u; j < min(4u, D - 4u * c); j++) {
    let one = at + 4u * c + j;
    four[j] = one_of(cache$m[one / select(2u, 4u, KV_TYPE == 1u)], one);
  }
  return four;
}
#end

@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  let head = group.y;
  let channel0 = head / (HEADS / KV_HEADS) * D;
  let own = symbol(POSITIONS, row);
  var first = symbol(SEEN_FIRST, row);
  var end = symbol(SEEN_END, row);
  if (WINDOW > 0u && BOTH_WAYS) {
    first = max(first, own + 1u - min(own + 1u, WINDOW));
    end = min(end, own + WINDOW);
  } else if (WINDOW > 0u) {
    first = max(first, end - min(end, WINDOW));
  }
  let vectors = (D + 3u) / 4u;
  begin(row, head, lane);
  workgroupBarrier();
  let c = lane % WIDE;
  let groups = kKeys / WIDE;
  let bias_stride = (HEADS + 7u) / 8u * 8u;
  var most = -3.4e38f;
  var sum = 0.0f;
  var made = vec4<f32>();
  for (var base = first; base < end; base += kKeys) {
    let key = base + lane;
    var score = -3.4e38f;
    if (key < end) {
      let at = (page_of(row, key) * 16u + key % 16u) * (KV_HEADS * D) + channel0;
      places[lane] = at;
      var four = vec4<f32>();
      for (var i = 0u; i < vectors; i++) { four = fma(query[i], key_at(at, i, key == own), four); }
      score = ((four.x + four.y) + (four.z + four.w)) * SCALE;
      if (CAP > 0.0) { score = CAP * tanh_f(score / CAP); }
      if (BIASED) {
        score += bias_at(u32(relative_bucket(i32(key) - i32(own))) * bias_stride + head);
      }
    }
    let largest = max(most, tree_max(score, lane));
    let before = exp_f(most - largest);
    most = largest;
    weighed[lane] = select(0.0, exp_f(score - most), key < end);
    workgroupBarrier();
    sum *= before;
    made *= before;
    if (c < vectors) {
      for (var j = lane / WIDE; j < min(kKeys, end - base); j += groups) {
        sum += weighed[j];
        made = fma(vec4<f32>(weighed[j]), value_at(places[j], c, base + j == own), made);
      }
    }
    workgroupBarrier();
  }
  exchange[lane] = sum;
  parts[lane] = made;
  workgroupBarrier();
  if (lane < vectors) {
    for (var other = lane + WIDE; other < kKeys; other += WIDE) {
      sum += exchange[other];
      made += parts[other];
    }
    made /= sum;
    for (var j = 0u; j < min(4u, D - 4u * lane); j++) {
      result[(row * HEADS + head) * D + 4u * lane + j] = made[j];
    }
  }
}
)wgsl"
