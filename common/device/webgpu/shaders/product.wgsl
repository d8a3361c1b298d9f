R"wgsl(
// y[r, m] = sum over k of x[r, k] w[m, k], then finish(). LANES lanes share an output. K is cut into
// chunks of 8; lane t sums chunks t, t + LANES, ... in order, and the lanes are added in pairs. The
// order depends on LANES alone, not on BLOCK, the rows that a workgroup takes.
// Binding 1 is x, 2 the matrix, 3 its scales where it is in blocks.
// W_TYPE: 0 F32, 1 F16, 2 BF16, 3 Q8_0, 4 Q4_0, 5 Q6_K, 6 Q4_K. weights.h has the layouts.
override K: u32;
override OUT_ROWS: bool;  // its rows are output rows
override X_STRIDE: u32;
override COLUMN0: u32;  // first column of this piece of the matrix, which has
override PIECE: u32;    // columns of the result
override W_TYPE: u32;
override LANES: u32 = 32u;
@group(0) @binding(1) var<storage, read> x: array<f32>;
@group(0) @binding(2) var<storage, read> w: array<u32>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
var<workgroup> lane_sums: array<f32, BLOCK * 64u>;

struct Chunk {
  low: vec4<f32>,
  high: vec4<f32>,
  scale: f32,
  less: f32,  // what numbers are less, behind their scale
}

fn halves(words: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(unpack2x16float(words.x), unpack2x16float(words.y));
}
fn brains(words: vec2<u32>) -> vec4<f32> {
  return vec4<f32>(bitcast<f32>(words.x << 16u), bitcast<f32>(words.x & 0xffff0000u),
                   bitcast<f32>(words.y << 16u), bitcast<f32>(words.y & 0xffff0000u));
}
fn floats(at: u32) -> vec4<f32> {
  return vec4<f32>(bitcast<f32>(w[at]), bitcast<f32>(w[at + 1u]), bitcast<f32>(w[at + 2u]),
                   bitcast<f32>(w[at + 3u]));
}
fn signed_bytes(word: u32) -> vec4<f32> {
  let bits = bitcast<i32>(word);
  return vec4<f32>(f32((bits << 24u) >> 24u), f32((bits << 16u) >> 24u), f32((bits << 8u) >> 24u),
                   f32(bits >> 24u));
}
fn nibbles(word: u32) -> vec4<f32> {
  return vec4<f32>(f32(word & 15u), f32((word >> 4u) & 15u), f32((word >> 8u) & 15u),
                   f32((word >> 12u) & 15u));
}
// The half in the low bits, also where it has no leading one, which a device may take for 0.
fn half_of(bits: u32) -> f32 {
  let exponent = (bits >> 10u) & 31u;
  let fraction = bits & 1023u;
  let size = f32(select(fraction | 1024u, fraction, exponent == 0u)) *
             bitcast<f32>((max(exponent, 1u) + 102u) << 23u);
  return select(-size, size, (bits & 0x8000u) == 0u);
}
// Brings the scale of chunk `c`.
fn scaled(column: u32, c: u32, chunk: ptr<function, Chunk>) {
  let block = column * ((K + 31u) / 32u) + c / 4u;
  if (W_TYPE < 5u) {
    (*chunk).scale = bitcast<f32>(scales[block]);
    return;
  }
  let first = block / 8u * 5u;
  let halves = scales[first];
  let factors = scales[first + 1u + block % 8u / 2u] >> (16u * (block % 2u));
  if (W_TYPE == 5u) {
    let factor = bitcast<i32>(factors << select(16u, 24u, c % 4u < 2u)) >> 24u;
    (*chunk).scale = half_of(halves) * f32(factor);
  } else {
    (*chunk).scale = half_of(halves) * f32(factors & 255u);
    (*chunk).less = half_of(halves >> 16u) * f32((factors >> 8u) & 255u);
  }
}
fn chunk_of(column: u32, c: u32) -> Chunk {
  var chunk = Chunk(vec4<f32>(), vec4<f32>(), 1.0, 0.0);
  let chunks = (K + 7u) / 8u;
  if (W_TYPE == 0u) {
    let at = (column * chunks + c) * 8u;
    chunk.low = floats(at);
    chunk.high = floats(at + 4u);
  } else if (W_TYPE < 3u) {
    let at = (column * chunks + c) * 4u;
    let first = vec2<u32>(w[at], w[at + 1u]);
    let second = vec2<u32>(w[at + 2u], w[at + 3u]);
    if (W_TYPE == 1u) {
      chunk.low = halves(first);
      chunk.high = halves(second);
    } else {
      chunk.low = brains(first);
      chunk.high = brains(second);
    }
  } else {
    scaled(column, c, &chunk);
    let at = column * ((K + 31u) / 32u * 4u) + c;
    if (W_TYPE == 3u || W_TYPE == 5u) {
      chunk.low = signed_bytes(w[2u * at]);
      chunk.high = signed_bytes(w[2u * at + 1u]);
    } else {
      chunk.low = nibbles(w[at]);
      chunk.high = nibbles(w[at] >> 16u);
      if (W_TYPE == 4u) {
        chunk.low -= vec4<f32>(8.0);
        chunk.high -= vec4<f32>(8.0);
      }
    }
  }
  return chunk;
}
fn x_at(row: u32, k: u32) -> vec4<f32> {
  let at = row * X_STRIDE + k;
  if (k + 3u < K) { return vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]); }
  var four = vec4<f32>();
  for (var i = 0u; i < 4u; i++) {
    if (k + i < K) { four[i] = x[at + i]; }
  }
  return four;
}

@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let t = lane % LANES;
  let column = group.y * (64u / LANES) + lane / LANES;
  let row0 = group.x * BLOCK;
  let rows = select(symbols[0], symbols[1], OUT_ROWS);
  let chunks = (K + 7u) / 8u;
  var sums: array<f32, BLOCK>;
  for (var c = t; c < chunks; c += LANES) {
    let chunk = chunk_of(min(column, PIECE - 1u), c);
    for (var n = 0u; n < BLOCK; n++) {
      let row = min(row0 + n, rows - 1u);
      let a = x_at(row, c * 8u);
      let b = x_at(row, c * 8u + 4u);
      if (W_TYPE < 3u) {
        sums[n] = dot4(chunk.high, b, dot4(chunk.low, a, sums[n]));
      } else {
        let ab = a + b;
        sums[n] = fma(-chunk.less, (ab.x + ab.y) + (ab.z + ab.w), sums[n]);
        sums[n] = fma(chunk.scale, dot4(chunk.high, b, dot4(chunk.low, a, 0.0)), sums[n]);
      }
    }
  }
  for (var n = 0u; n < BLOCK; n++) { lane_sums[n * 64u + lane] = sums[n]; }
  workgroupBarrier();
  for (var apart = 1u; apart < LANES; apart <<= 1u) {
    for (var n = 0u; n < BLOCK; n++) {
      let at = n * 64u + lane;
      if (t % (2u * apart) == 0u) { lane_sums[at] = lane_sums[at] + lane_sums[at + apart]; }
    }
    workgroupBarrier();
  }
  if (t < BLOCK && column < PIECE && row0 + t < rows) {
    finish(row0 + t, COLUMN0 + column, lane_sums[t * 64u + lane - t]);
  }
}
fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
)wgsl"
