R"wgsl(
// Attention of a step of one row, which turns the row's query and key itself (rotate.wgsl) and stores
// key and value, as kv_store.wgsl does: it reads those that it stores from its own memory. D % 4 == 0.
// q_of, k_of, v_of, cosine_of, sine_of and weight_at read what is bound from 4 on.
override Q_FIRST: u32;
override K_FIRST: u32;
override V_FIRST: u32;
override TURNED: bool;
override NORMED: bool;
override EPS: f32 = 0.0;
override PLUS: f32 = 0.0;
@group(0) @binding(2) var<storage, read_write> cache0: array<vec2<u32>>;
@group(0) @binding(3) var<storage, read_write> cache1: array<vec2<u32>>;
const kKey = 256u;
const kValue = 512u;
var<workgroup> row_own: array<f32, 768>;  // the head's query, key and value
var<workgroup> squares: array<f32, 128>;

fn bias_at(at: u32) -> f32 { return 0.0f; }
fn own_four(at: u32) -> vec4<f32> {
  return vec4<f32>(row_own[at], row_own[at + 1u], row_own[at + 2u], row_own[at + 3u]);
}
fn key_at(at: u32, c: u32, own: bool) -> vec4<f32> {
  if (own) { return own_four(kKey + 4u * c); }
  return at0(at, c);
}
fn value_at(at: u32, c: u32, own: bool) -> vec4<f32> {
  if (own) { return own_four(kValue + 4u * c); }
  return at1(at, c);
}
// Turns the query by lanes [0, 64), the key by the next 64.
fn turn(lane: u32) {
  let which = lane / 64u;
  let t = lane % 64u;
  let at = which * kKey;
  var scale = 1.0f;
  if (NORMED) {
    if (which < 2u) {
      var sum = 0.0f;
      for (var d = t; d < D; d += 64u) { sum = fma(row_own[at + d], row_own[at + d], sum); }
      squares[lane] = sum;
    }
    workgroupBarrier();
    for (var apart = 32u; apart > 0u; apart >>= 1u) {
      if (which < 2u && t < apart) { squares[lane] = squares[lane] + squares[lane + apart]; }
      workgroupBarrier();
    }
    if (which < 2u) { scale = 1.0f / sqrt(squares[which * 64u] * (1.0f / f32(D)) + EPS); }
  }
  let pairs = D / 2u;
  let table = symbol(POSITIONS, 0u) * pairs;
  if (which < 2u) {
    for (var i = t; i < pairs; i += 64u) {
      var a = row_own[at + i];
      var b = row_own[at + i + pairs];
      if (NORMED) {
        a = a * scale * (weight_at(which * D + i) + PLUS);
        b = b * scale * (weight_at(which * D + i + pairs) + PLUS);
      }
      let c = cosine_of(table + i);
      let s = sine_of(table + i);
      row_own[at + i] = fma(a, c, -(b * s));
      row_own[at + i + pairs] = fma(b, c, a * s);
    }
  }
  workgroupBarrier();
}
// Numbers from `at` on as a cache has them.
fn pair(at: u32) -> vec2<u32> {
  let four = own_four(at);
  if (KV_TYPE == 0u) { return bitcast<vec2<u32>>(four.xy); }
  return vec2<u32>(pack2x16float(four.xy), pack2x16float(four.zw));
}
fn put_four(at: u32, four: vec4<f32>) {
  for (var j = 0u; j < 4u; j++) { row_own[at + j] = four[j]; }
}
fn begin(row: u32, head: u32, lane: u32) {
  let group = HEADS / KV_HEADS;
  let channel = head / group * D;
  if (lane < D) {
    row_own[lane] = q_of(Q_FIRST + head * D + lane);
    row_own[kKey + lane] = k_of(K_FIRST + channel + lane);
    row_own[kValue + lane] = v_of(V_FIRST + channel + lane);
  }
  workgroupBarrier();
  if (TURNED) { turn(lane); }
  if (lane < D / 4u) { query[lane] = own_four(4u * lane); }
  let position = symbol(POSITIONS, 0u);
  let each = select(2u, 4u, KV_TYPE == 1u);
  if (lane < D / each) {
    let key = pair(kKey + each * lane);
    let value = pair(kValue + each * lane);
    if (head % group == 0u) {
      let to = ((page_of(0u, position) * 16u + position % 16u) * (KV_HEADS * D) + channel) / each + lane;
      cache0[to] = key;
      cache1[to] = value;
    }
    if (KV_TYPE == 1u) {
      put_four(kKey + 4u * lane, four_of(key, key));
      put_four(kValue + 4u * lane, four_of(value, value));
    }
  }
}
)wgsl"
