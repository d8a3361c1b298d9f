R"wgsl(
// y[r, m] = sum over k of x[r, k] w[m, k], then finish(). LANES lanes share an output. K is cut into
// units of 4 VECTORS numbers; lane t sums units t, t + LANES, ... in order, and the lanes' sums are
// added in four chains. The order depends on the type and K alone, not on BLOCK, COLS and OUTPUTS, the
// rows and columns that a lane takes at a time and the groups of lanes; what a lane keeps has names, so
// that it stays in registers.
// Binding 1 is x (rows1.wgsl, rows4.wgsl), 2 the matrix, 3 its scales where it is in blocks
// (dense.wgsl, blocks.wgsl). PRODUCTS: 2 where the matrix has the columns of a twin in turn with its own.
override K: u32;
override OUT_ROWS: bool;  // its rows are output rows
override X_STRIDE: u32;
override COLUMN0: u32;  // first column of this piece of the matrix, which has
override PIECE: u32;    // columns of the matrix
override W_TYPE: u32;   // 0 F32, 1 F16, 2 BF16, 3 Q8_0, 4 Q4_0, 5 Q6_K, 6 Q4_K, packed by weights.h
@group(0) @binding(2) var<storage, read> w: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read> scales: array<u32>;
var<workgroup> lane_sums: array<f32, BLOCK * COLS * LANES * OUTPUTS>;

fn dot4(a: vec4<f32>, b: vec4<f32>, sum: f32) -> f32 {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}

@compute @workgroup_size(LANES * OUTPUTS)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
  let t = lane % LANES;
  let column0 = group.y * (OUTPUTS * COLS) + lane / LANES * COLS;
  let row0 = group.x * BLOCK;
  let rows = select(symbols[0], symbols[1], OUT_ROWS);
  let units = (K + 4u * VECTORS - 1u) / (4u * VECTORS);
#each n BLOCK
#each j COLS
  var sum$n_$j = 0.0f;
#end
#end
  for (var u = t; u < units; u += LANES) {
#each j COLS
    let unit$j = unit_of(min(column0 + $ju, PIECE - 1u), u, units);
#end
#each n BLOCK
    let x$n = rows_of(min(row0 + $nu, rows - 1u), u);
#each j COLS
    sum$n_$j = added(sum$n_$j, unit$j, x$n);
#end
#end
  }
#each n BLOCK
#each j COLS
  lane_sums[($nu * COLS + $ju) * (LANES * OUTPUTS) + lane] = sum$n_$j;
#end
#end
  workgroupBarrier();
  let results = COLS / PRODUCTS;
  let row = row0 + t / results;
  let column = column0 + t % results * PRODUCTS;
  if (t < BLOCK * results && column < PIECE && row < rows) {
    var products: array<f32, PRODUCTS>;
#each p PRODUCTS
    {
      let first = (t * PRODUCTS + $pu) * (LANES * OUTPUTS) + lane - t;
      var four = vec4<f32>();
      for (var i = 0u; i < LANES; i += 4u) {
        four += vec4<f32>(lane_sums[first + i], lane_sums[first + i + 1u], lane_sums[first + i + 2u],
                          lane_sums[first + i + 3u]);
      }
      products[$p] = (four.x + four.y) + (four.z + four.w);
    }
#end
    finish(row, (COLUMN0 + column) / PRODUCTS, products[PRODUCTS - 1u], products[0]);
  }
}
)wgsl"
