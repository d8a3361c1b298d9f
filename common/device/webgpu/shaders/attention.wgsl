R"wgsl(
// Attention of a row's head over the keys that the row sees, which lie in pages of 16 positions: page
// p of a cache has rows [16 p, 16 p + 16) of KV_WIDTH channels, F32 or pairs of halves. A workgroup
// takes 64 keys at a time, one a lane, then 64 channels, one a lane, in the order of the keys.
override HEADS: u32;
override KV_HEADS: u32;
override D: u32;  // channels of a head, at most kMostChannels
override Q_STRIDE: u32;
override Q_FIRST: u32;
override WINDOW: u32;
override BOTH_WAYS: bool;
override BIASED: bool;
override KV_TYPE: u32;  // 0 F32, 1 F16
override SCALE: f32;
override CAP: f32;  // 0: none
@group(0) @binding(1) var<storage, read> q: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
@group(0) @binding(3) var<storage, read> k_cache: array<u32>;
@group(0) @binding(4) var<storage, read> v_cache: array<u32>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
const kKeys = 64u;
const kMostChannels = 256u;
var<workgroup> query: array<f32, kMostChannels>;
var<workgroup> weights: array<f32, kKeys>;

fn number_of(word: u32, at: u32) -> f32 {
  if (KV_TYPE == 0u) { return bitcast<f32>(word); }
  let both = unpack2x16float(word);
  return select(both.x, both.y, (at & 1u) == 1u);
}
fn k_at(at: u32) -> f32 { return number_of(k_cache[select(at, at >> 1u, KV_TYPE == 1u)], at); }
fn v_at(at: u32) -> f32 { return number_of(v_cache[select(at, at >> 1u, KV_TYPE == 1u)], at); }

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  let head = group.y;
  let kv_width = KV_HEADS * D;
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
  for (var d = lane; d < D; d += 64u) { query[d] = q[row * Q_STRIDE + Q_FIRST + head * D + d]; }
  workgroupBarrier();
  let bias_stride = (HEADS + 7u) / 8u * 8u;
  var most = -3.4e38f;
  var sum = 0.0f;
  var made: array<f32, kMostChannels / 64u>;
  for (var base = first; base < end; base += kKeys) {
    let key = base + lane;
    var score = -3.4e38f;
    if (key < end) {
      let at = (page_of(row, key) * 16u + key % 16u) * kv_width + channel0;
      score = 0.0;
      for (var d = 0u; d < D; d++) { score = fma(query[d], k_at(at + d), score); }
      score = score * SCALE;
      if (CAP > 0.0) { score = CAP * tanh_f(score / CAP); }
      if (BIASED) {
        score += bias[u32(relative_bucket(i32(key) - i32(own))) * bias_stride + head];
      }
    }
    weights[lane] = score;
    workgroupBarrier();
    var largest = most;
    for (var i = 0u; i < kKeys; i++) { largest = max(largest, weights[i]); }
    let before = exp_f(most - largest);
    most = largest;
    workgroupBarrier();
    weights[lane] = select(0.0, exp_f(score - most), key < end);
    workgroupBarrier();
    sum *= before;
    for (var i = 0u; i < kMostChannels / 64u; i++) { made[i] *= before; }
    for (var j = 0u; j < min(kKeys, end - base); j++) {
      let weight = weights[j];
      let at = (page_of(row, base + j) * 16u + (base + j) % 16u) * kv_width + channel0;
      sum += weight;
      for (var i = 0u; i * 64u + lane < D; i++) {
        made[i] = fma(weight, v_at(at + i * 64u + lane), made[i]);
      }
    }
    workgroupBarrier();
  }
  for (var i = 0u; i * 64u + lane < D; i++) {
    result[(row * HEADS + head) * D + i * 64u + lane] = made[i] / sum;
  }
}
)wgsl"
