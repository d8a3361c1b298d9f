R"wgsl(
// Units of a matrix in blocks, and of rows of x: 32 numbers.
const VECTORS = 8u;
struct Unit {
#each i 8
  q$i: vec4<f32>,
#end
  scale: vec2<f32>,  // of each half
  less: f32,         // what numbers are less, behind their scale
}
struct Row {
#each i 8
  q$i: vec4<f32>,
#end
}
fn rows_of(row: u32, u: u32) -> Row {
  var all: Row;
#each i 8
  all.q$i = x_at(row, 8u * u + $iu);
#end
  return all;
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
// Brings the scales of a block of 32.
fn scaled(column: u32, u: u32, unit: ptr<function, Unit>) {
  let block = column * (K / 32u) + u;
  if (W_TYPE < 5u) {
    (*unit).scale = vec2<f32>(bitcast<f32>(scales[block]));
    return;
  }
  let first = block / 8u * 5u;
  let both = scales[first];
  let factors = scales[first + 1u + block % 8u / 2u] >> (16u * (block % 2u));
  if (W_TYPE == 5u) {
    let signed = bitcast<i32>(factors);
    (*unit).scale = half_of(both) * vec2<f32>(f32((signed << 24u) >> 24u), f32((signed << 16u) >> 24u));
  } else {
    (*unit).scale = vec2<f32>(half_of(both) * f32(factors & 255u));
    (*unit).less = half_of(both >> 16u) * f32((factors >> 8u) & 255u);
  }
}
fn unit_of(column: u32, u: u32, units: u32) -> Unit {
  var unit: Unit;
  scaled(column, u, &unit);
  let at = column * units + u;
  if (W_TYPE == 3u || W_TYPE == 5u) {
    let low = w[2u * at];
    let high = w[2u * at + 1u];
#each i 4
    unit.q$i = signed_bytes(low[$i]);
#end
    unit.q4 = signed_bytes(high[0]);
    unit.q5 = signed_bytes(high[1]);
    unit.q6 = signed_bytes(high[2]);
    unit.q7 = signed_bytes(high[3]);
  } else {
    let words = w[at];
    let less = select(0.0, 8.0, W_TYPE == 4u);
#each i 8
    unit.q$i = nibbles(words[$iu / 2u] >> ($iu % 2u * 16u)) - less;
#end
  }
  return unit;
}
fn added(sum: f32, unit: Unit, x: Row) -> f32 {
  let low = dot4(unit.q3, x.q3, dot4(unit.q2, x.q2, dot4(unit.q1, x.q1, dot4(unit.q0, x.q0, 0.0f))));
  let high = dot4(unit.q7, x.q7, dot4(unit.q6, x.q6, dot4(unit.q5, x.q5, dot4(unit.q4, x.q4, 0.0f))));
  var all = fma(unit.scale.y, high, fma(unit.scale.x, low, sum));
  if (W_TYPE == 6u) {
    let whole = x.q0 + x.q1 + x.q2 + x.q3 + x.q4 + x.q5 + x.q6 + x.q7;
    all = fma(-unit.less, (whole.x + whole.y) + (whole.z + whole.w), all);
  }
  return all;
}
)wgsl"
