R"wgsl(
// y[r, m] = sum over k of x[r, k] w[m, k], then finish(). LANES lanes share an output. K is cut into
// units of 4 VECTORS numbers; lane t sums units t, t + LANES, ... in order, and the lanes' sums are
// added in four chains. The order depends on the type alone, not on BLOCK and COLS, the rows and
// columns that a lane takes at a time.
// Binding 1 is x (rows1.wgsl, rows4.wgsl), 2 the matrix, 3 its scales where it is in blocks.
// W_TYPE: 0 F32, 1 F16, 2 BF16, 3 Q8_0, 4 Q4_0, 5 Q6_K, 6 Q4_K. weights.h has the layouts.
override K: u32;
override OUT_ROWS: bool;  // its rows are output rows
override X_STRIDE: u32;
override COLUMN0: u32;  // first column of this piece of the matrix, which has
override PIECE: u32;    // columns of the result
override W_TYPE: u32;
const LANES = 32u;
const OUTPUTS = 2u;  // groups of lanes
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
var<workgroup> lane_sums: array<f32, BLOCK * COLS * 64u>;

// A unit of a column.
struct Unit {
  q: array<vec4<f32>, VECTORS>,
  scale: vec2<f32>,  // of each half
  less: f32,         // what numbers are less, behind their scale
}

fn halves(words: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
fn brains(words: vec2<u32>) -> vec4<f32> {
  return bitcast<vec4<f32>>(vec4<u32>(words.x << 16u, words.x & 0xffff0000u, words.y << 16u,
                                      words.y & 0xffff0000u));
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
  if (W_TYPE == 0u) {
    let at = (column * units + u) * 2u;
    unit.q[0] = bitcast<vec4<f32>>(w[at]);
    unit.q[1] = bitcast<vec4<f32>>(w[at + 1u]);
  } else if (W_TYPE < 3u) {
    let words = w[column * units + u];
    if (W_TYPE == 1u) {
      unit.q[0] = halves(words.xy);
      unit.q[1] = halves(words.zw);
    } else {
      unit.q[0] = brains(words.xy);
      unit.q[1] = brains(words.zw);
    }
  } else {
    scaled(column, u, &unit);
    if (W_TYPE == 3u || W_TYPE == 5u) {
      for (var half = 0u; half < 2u; half++) {
        let words = w[(column * units + u) * 2u + half];
        for (var i = 0u; i < 4u; i++) { unit.q[(half * 4u + i) % VECTORS] = signed_bytes(words[i]); }
      }
    } else {
      let words = w[column * units + u];
      let less = select(0.0, 8.0, W_TYPE == 4u);
      for (var i = 0u; i < 4u; i++) {
        unit.q[(2u * i) % VECTORS] = nibbles(words[i]) - less;
        unit.q[(2u * i + 1u) % VECTORS] = nibbles(words[i] >> 16u) - less;
      }
    }
  }
  return unit;
}
fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
fn added(sum: f32, unit: ptr<function, Unit>, x: ptr<function, array<vec4<f32>, VECTORS>>) -> f32 {
  if (W_TYPE < 3u) { return dot4((*unit).q[1], (*x)[1], dot4((*unit).q[0], (*x)[0], sum)); }
  var low = 0.0f;
  var high = 0.0f;
  for (var i = 0u; i < VECTORS / 2u; i++) {
    low = dot4((*unit).q[i], (*x)[i], low);
    high = dot4((*unit).q[VECTORS / 2u + i], (*x)[VECTORS / 2u + i], high);
  }
  var all = fma((*unit).scale.y, high, fma((*unit).scale.x, low, sum));
  if (W_TYPE == 6u) {
    var whole = (*x)[0];
    for (var i = 1u; i < VECTORS; i++) { whole += (*x)[i]; }
    all = fma(-(*unit).less, (whole.x + whole.y) + (whole.z + whole.w), all);
  }
  return all;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let t = lane % LANES;
  let column0 = group.y * (OUTPUTS * COLS) + lane / LANES * COLS;
  let row0 = group.x * BLOCK;
  let rows = select(symbols[0], symbols[1], OUT_ROWS);
  let units = (K + 4u * VECTORS - 1u) / (4u * VECTORS);
  var sums: array<f32, BLOCK * COLS>;
  for (var u = t; u < units; u += LANES) {
    var taken: array<Unit, COLS>;
    for (var j = 0u; j < COLS; j++) { taken[j] = unit_of(min(column0 + j, PIECE - 1u), u, units); }
    for (var n = 0u; n < BLOCK; n++) {
      let row = min(row0 + n, rows - 1u);
      var x: array<vec4<f32>, VECTORS>;
      for (var i = 0u; i < VECTORS; i++) { x[i] = x_at(row, u * VECTORS + i); }
      for (var j = 0u; j < COLS; j++) {
        sums[n * COLS + j] = added(sums[n * COLS + j], &taken[j], &x);
      }
    }
  }
  for (var i = 0u; i < BLOCK * COLS; i++) { lane_sums[i * 64u + lane] = sums[i]; }
  workgroupBarrier();
  let row = row0 + t / COLS;
  let column = column0 + t % COLS;
  if (t < BLOCK * COLS && column < PIECE && row < rows) {
    let first = t * 64u + lane - t;
    var four = vec4<f32>();
    for (var i = 0u; i < LANES; i += 4u) {
      four += vec4<f32>(lane_sums[first + i], lane_sums[first + i + 1u], lane_sums[first + i + 2u],
                        lane_sums[first + i + 3u]);
    }
    finish(row, COLUMN0 + column, (four.x + four.y) + (four.z + four.w));
  }
}
)wgsl"
