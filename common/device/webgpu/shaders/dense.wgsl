R"wgsl(
// Units of a matrix of F32, F16 or BF16, and of rows of x: 8 numbers.
const VECTORS = 2u;
struct Unit {
  q0: vec4<f32>,
  q1: vec4<f32>,
}
fn rows_of(row: u32, u: u32) -> Unit { return Unit(x_at(row, 2u * u), x_at(row, 2u * u + 1u)); }
fn halves(words: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
fn brains(words: vec2<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(words.x << 16u, words.x & 0xffff0000u, words.y << 16u,
                                      words.y & 0xffff0000u));
}
fn unit_of(column: u32, u: u32, units: u32) -> Unit {
  let at = column * units + u;
  if (W_TYPE == 0u) {
    return Unit(bitcast<vec4<f32>>(w[2u * at]), bitcast<vec4<f32>>(w[2u * at + 1u]));
  }
  let words = w[at];
  if (W_TYPE == 1u) { return Unit(halves(words.xy), halves(words.zw)); }
  return Unit(brains(words.xy), brains(words.zw));
}
fn added(sum: f32, unit: Unit, x: Unit) -> f32 { return dot4(unit.q1, x.q1, dot4(unit.q0, x.q0, sum)); }
)wgsl"
