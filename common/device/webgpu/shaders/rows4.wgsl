R"wgsl(
// A product's rows of whole vectors of 4.
@group(0) @binding(1) var<storage, read> x: array<vec4<f32>>;
fn x_at(row: u32, i: u32) -> vec4<f32> { return x[row * (X_STRIDE / 4u) + i]; }
)wgsl"
