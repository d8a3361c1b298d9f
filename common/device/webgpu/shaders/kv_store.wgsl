R"wgsl(
// Stores a row's keys and values into their pages: a lane has one channel of F32, or a pair of halves.
override KV_WIDTH: u32;
override K_STRIDE: u32;
override K_FIRST: u32;
override V_STRIDE: u32;
override V_FIRST: u32;
override KV_TYPE: u32;  // 0 F32, 1 F16
@group(0) @binding(1) var<storage, read> keys: array<f32>;
@group(0) @binding(2) var<storage, read> values: array<f32>;
@group(0) @binding(3) var<storage, read_write> k_cache: array<u32>;
@group(0) @binding(4) var<storage, read_write> v_cache: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) at: vec3<u32>) {
  let row = at.y;
  let position = symbol(POSITIONS, row);
  let words = select(KV_WIDTH, KV_WIDTH / 2u, KV_TYPE == 1u);
  if (at.x >= words) { return; }
  let to = (page_of(row, position) * 16u + position % 16u) * words + at.x;
  let k = row * K_STRIDE + K_FIRST;
  let v = row * V_STRIDE + V_FIRST;
  if (KV_TYPE == 0u) {
    k_cache[to] = bitcast<u32>(keys[k + at.x]);
    v_cache[to] = bitcast<u32>(values[v + at.x]);
  } else {
    let c = 2u * at.x;
    k_cache[to] = pack2x16float(vec2<f32>(keys[k + c], keys[k + c + 1u]));
    v_cache[to] = pack2x16float(vec2<f32>(values[v + c], values[v + c + 1u]));
  }
}
)wgsl"
