R"wgsl(
// Attention of rows whose keys and values are all in the caches.
override Q_STRIDE: u32;
override Q_FIRST: u32;
@group(0) @binding(2) var<storage, read> q: array<f32>;
@group(0) @binding(3) var<storage, read> cache0: array<vec2<u32>>;
@group(0) @binding(4) var<storage, read> cache1: array<vec2<u32>>;
@group(0) @binding(5) var<storage, read> bias: array<f32>;
fn bias_at(at: u32) -> f32 { return bias[at]; }
fn key_at(at: u32, c: u32, own: bool) -> vec4<f32> { return at0(at, c); }
fn value_at(at: u32, c: u32, own: bool) -> vec4<f32> { return at1(at, c); }
fn begin(row: u32, head: u32, lane: u32) {
  if (lane < (D + 3u) / 4u) {
    var four = vec4<f32>();
    for (var j = 0u; j < min(4u, D - 4u * lane); j++) {
      four[j] = q[row * Q_STRIDE + Q_FIRST + head * D + 4u * lane + j];
    }
    query[lane] = four;
  }
}
)wgsl"
