R"wgsl(
// Rotary positions of a row's head: pairs of channels (i, i + D / 2), behind the head's norm if it is
// NORMED.
override HEADS: u32;
override D: u32;
override X_STRIDE: u32;
override X_FIRST: u32;
override NORMED: bool;
override EPS: f32;
override PLUS: f32;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read_write> result: array<f32>;
@group(0) @binding(3) var<storage, read> cosines: array<f32>;
@group(0) @binding(4) var<storage, read> sines: array<f32>;
@group(0) @binding(5) var<storage, read> weights: array<u32>;
var<workgroup> squares: array<f32, 64>;

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let row = group.x;
  let head = group.y;
  let begin = row * X_STRIDE + X_FIRST + head * D;
  var scale = 1.0f;
  if (NORMED) {
    var sum = 0.0f;
    for (var d = lane; d < D; d += 64u) { sum = fma(x[begin + d], x[begin + d], sum); }
    squares[lane] = sum;
    workgroupBarrier();
    for (var apart = 32u; apart > 0u; apart >>= 1u) {
      if (lane < apart) { squares[lane] = squares[lane] + squares[lane + apart]; }
      workgroupBarrier();
    }
    scale = 1.0f / sqrt(squares[0] * (1.0f / f32(D)) + EPS);
  }
  let pairs = D / 2u;
  let table = symbol(POSITIONS, row) * pairs;
  for (var i = lane; i < pairs; i += 64u) {
    var a = x[begin + i];
    var b = x[begin + i + pairs];
    if (NORMED) {
      a = a * scale * (weight_at(i) + PLUS);
      b = b * scale * (weight_at(i + pairs) + PLUS);
    }
    let c = cosines[table + i];
    let s = sines[table + i];
    let to = (row * HEADS + head) * D + i;
    result[to] = fma(a, c, -(b * s));
    result[to + pairs] = fma(b, c, a * s);
  }
}
)wgsl"
