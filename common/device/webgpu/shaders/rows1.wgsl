R"wgsl(
// A product's rows of any length.
@group(0) @binding(1) var<storage, read> x: array<f32>;
fn x_at(row: u32, i: u32) -> vec4<f32> {
  var four = vec4<f32>();
  for (var j = 0u; j < 4u; j++) {
    if (4u * i + j < K) { four[j] = x[row * X_STRIDE + 4u * i + j]; }
  }
  return four;
}
)wgsl"
