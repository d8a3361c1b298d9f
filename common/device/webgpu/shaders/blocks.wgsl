R"wgsl(
// Units of a matrix in blocks, and of rows of x: 16 numbers, half a block.
const VECTORS = 4u;
struct Unit {
#each i 4
  q$i: vec4<f32>,
#end
  scale: f32,
  less: f32,  // what numbers are less, behind their scale
}
struct Row {
#each i 4
  q$i: vec4<f32>,
#end
}
fn rows_of(row: u32, u: u32) -> Row {
  return Row(x_at(row, 4u * u), x_at(row, 4u * u + 1u), x_at(row, 4u * u + 2u), x_at(row, 4u * u + 3u));
}
fn signed_bytes(word: u32) -> vec4<f32> {
  return vec4<f32>((vec4<i32>(bitcast<i32>(word)) << vec4<u32>(24u, 16u, 8u, 0u)) >>
                   vec4<u32>(24u));
}
fn nibbles(word: u32) -> vec4<f32> {
  return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 4u, 8u, 12u)) & vec4<u32>(15u));
}
// The half in the low bits, also where it has no leading one, which a device may take for 0.
fn half_of(bits: u32) -> f32 {
  let exponent = (bits >> 10u) & 31u;
  let fraction = bits & 1023u;
  let size = f32(select(fraction | 1024u, fraction, exponent == 0u)) *
             bitcast<f32>((max(exponent, 1u) + 102u) << 23u);
  return select(-size, size, (bits & 0x8000u) == 0u);
}
// Brings the scales of a unit.
fn scaled(at: u32, unit: ptr<function, Unit>) {
  let block = at / 2u;
  if (W_TYPE < 5u) {
    (*unit).scale = bitcast<f32>(scales[block]);
    return;
  }
  let first = block / 8u * 5u;
  let both = scales[first];
  let factors = scales[first + 1u + block % 8u / 2u];
  let shift = 16u * (block % 2u);
  if (W_TYPE == 5u) {
    (*unit).scale = half_of(both) * f32(extractBits(bitcast<i32>(factors), shift + 8u * (at % 2u), 8u));
  } else {
    (*unit).scale = half_of(both) * f32(extractBits(factors, shift, 8u));
    (*unit).less = half_of(both >> 16u) * f32(extractBits(factors, shift + 8u, 8u));
  }
}
fn unit_of(column: u32, u: u32, units: u32) -> Unit {
  var unit: Unit;
  let at = column * units + u;
  scaled(at, &unit);
  if (W_TYPE == 3u || W_TYPE == 5u) {
    let words = w[at];
#each i 4
    unit.q$i = signed_bytes(words[$i]);
#end
  } else {
    let both = w[at / 2u];
    let words = select(both.xy, both.zw, at % 2u == 1u);
    let less = select(0.0, 8.0, W_TYPE == 4u);
#each i 4
    unit.q$i = nibbles(words[$iu / 2u] >> ($iu % 2u * 16u)) - less;
#end
  }
  return unit;
}
fn added(sum: f32, unit: Unit, x: Row) -> f32 {
  let all = fma(unit.scale, dot4(unit.q3, x.q3, dot4(unit.q2, x.q2, dot4(unit.q1, x.q1, dot4(unit.q0, x.q0, 0.0f)))), sum);
  if (W_TYPE != 6u) { return all; }
  let whole = (x.q0 + x.q1) + (x.q2 + x.q3);
  return fma(-unit.less, (whole.x + whole.y) + (whole.z + whole.w), all);
}
)wgsl"
