R"glsl(
// The product of int8_rows.comp by matrix units of int8, with the same bits: a block is one unit's K, its
// sums are whole numbers, and scales and chains are the same. A unit's elements have no known place, so that
// scales are matrices whose rows, or columns, are one: with a stride of 0. A subgroup has TILES_M by TILES_N
// tiles, a workgroup PARTS_M by PARTS_N subgroups; two blocks go through shared memory at a time.
#define SUM fcoopmatNV<32, gl_ScopeSubgroup, LM, LN>
#define WHOLE_SUM icoopmatNV<32, gl_ScopeSubgroup, LM, LN>
layout(set = 0, binding = 1) restrict readonly buffer X { uvec4 x_vectors[]; };
const uint TILE_ROWS = LM * TILES_M * PARTS_M, TILE_COLUMNS = LN * TILES_N * PARTS_N;
const uint STEP_VECTORS = 4, STRIDE = STEP_VECTORS + 1;  // of two blocks of a row; a vector more for banks
const uint STEPS = 4 * SEGMENTS;
const uint OWN_X = (TILE_ROWS * STEP_VECTORS + WORKGROUP - 1) / WORKGROUP;
const uint W_VECTORS = IN_BYTES ? 4 : 2;
const uint OWN_W = (TILE_COLUMNS * W_VECTORS + WORKGROUP - 1) / WORKGROUP;
shared uvec4 x_tile[TILE_ROWS * STRIDE], w_tile[TILE_COLUMNS * STRIDE];
shared float x_tile_scales[4 * TILE_ROWS], w_tile_scales[4 * TILE_COLUMNS];
shared float results[WORKGROUP / SUBGROUP * LM * LN];

// Bytes of 0 .. 15, each less 8.
uvec4 less_eight(uvec4 nibbles) {
  const uvec4 turned = nibbles ^ 0x08080808u;
  return turned | (turned & 0x08080808u) * 30u;
}

void main() {
  const uint lane = lane_index(), subgroup = lane / SUBGROUP;
  const uint row0 = gl_WorkGroupID.x * TILE_ROWS, column0 = gl_WorkGroupID.y * TILE_COLUMNS;
  if (!has_row(row0)) return;
  const uint rows = row_count(), part_m = subgroup / PARTS_N, part_n = subgroup % PARTS_N;
  SUM sums[TILES_M * TILES_N], segment[TILES_M * TILES_N];
  [[unroll]] for (uint i = 0; i < TILES_M * TILES_N; ++i) {
    sums[i] = SUM(0.0);
    segment[i] = SUM(0.0);
  }
  uvec4 own_x[OWN_X], own_w[OWN_W];
  uvec4 own_x_scales, own_w_scales;  // of four blocks
#define X_ROW(row) (min(row0 + (row), rows - 1) * SEGMENTS)
#define FETCH(step) \
  { \
    const uint s = (step) / 4, part = (step) % 4; \
    [[unroll]] for (uint n = 0; n < OWN_X; ++n) { \
      const uint i = n * WORKGROUP + lane, row = min(i / STEP_VECTORS, TILE_ROWS - 1); \
      own_x[n] = x_vectors[(X_ROW(row) + s) * SEGMENT_VECTORS + 4 * part + i % STEP_VECTORS]; \
    } \
    [[unroll]] for (uint n = 0; n < OWN_W; ++n) { \
      const uint i = n * WORKGROUP + lane, p = column0 + min(i / W_VECTORS, TILE_COLUMNS - 1); \
      const uint which = p % EACH, column = column_of(p / EACH, which); \
      own_w[n] = OF_MATRIX(which, w, vector_at(column, s, W_VECTORS * part + i % W_VECTORS)); \
    } \
    if (part % 2 == 0) { \
      const uint row = min(lane, TILE_ROWS - 1), p = column0 + min(lane, TILE_COLUMNS - 1), which = p % EACH; \
      own_x_scales = x_vectors[(X_ROW(row) + s) * SEGMENT_VECTORS + 16 + part / 2]; \
      own_w_scales = OF_MATRIX(which, scale_fours, scales_at(column_of(p / EACH, which), s, part / 2)); \
    } \
  }
  FETCH(0)
  for (uint step = 0; step < STEPS; ++step) {
    barrier();
    [[unroll]] for (uint n = 0; n < OWN_X; ++n) {
      const uint i = n * WORKGROUP + lane;
      if (i < TILE_ROWS * STEP_VECTORS) x_tile[i / STEP_VECTORS * STRIDE + i % STEP_VECTORS] = own_x[n];
    }
    [[unroll]] for (uint n = 0; n < OWN_W; ++n) {
      const uint i = n * WORKGROUP + lane;
      if (i < TILE_COLUMNS * W_VECTORS) {
        const uint at = i / W_VECTORS * STRIDE + i % W_VECTORS * (STEP_VECTORS / W_VECTORS);
        w_tile[at] = IN_BYTES ? own_w[n] : less_eight(own_w[n] & 0x0f0f0f0fu);
        if (!IN_BYTES) w_tile[at + 1] = less_eight(own_w[n] >> 4 & 0x0f0f0f0fu);
      }
    }
    if (step % 2 == 0) {
      [[unroll]] for (uint b = 0; b < 4; ++b) {
        if (lane < TILE_ROWS) x_tile_scales[b * TILE_ROWS + lane] = uintBitsToFloat(own_x_scales[b]);
        if (lane < TILE_COLUMNS) w_tile_scales[b * TILE_COLUMNS + lane] = uintBitsToFloat(own_w_scales[b]);
      }
    }
    barrier();
    if (step + 1 < STEPS) FETCH(step + 1)
    [[unroll]] for (uint b = 0; b < 2; ++b) {
      icoopmatNV<8, gl_ScopeSubgroup, LM, LK> x[TILES_M];
      SUM x_scales[TILES_M];
      [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
        const uint row = (part_m * TILES_M + i) * LM;
        coopMatLoadNV(x[i], x_tile, row * STRIDE + 2 * b, STRIDE, false);
        coopMatLoadNV(x_scales[i], x_tile_scales, (step % 2 * 2 + b) * TILE_ROWS + row, 0, true);
      }
      [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
        const uint column = (part_n * TILES_N + j) * LN;
        icoopmatNV<8, gl_ScopeSubgroup, LK, LN> own;
        SUM scales;
        coopMatLoadNV(own, w_tile, column * STRIDE + 2 * b, STRIDE, true);
        coopMatLoadNV(scales, w_tile_scales, (step % 2 * 2 + b) * TILE_COLUMNS + column, 0, false);
        [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
          // A whole number below 2^22 beside 1.5 * 2^23 is the last bits of a float.
          const WHOLE_SUM whole = coopMatMulAddNV(x[i], own, WHOLE_SUM(0x4b400000));
          const uint at = i * TILES_N + j;
          [[unroll]] for (uint e = 0; e < whole.length(); ++e) {
            const float sum = intBitsToFloat(whole[e]) - 12582912.0;
            segment[at][e] = segment[at][e] + sum * (scales[e] * x_scales[i][e]);
          }
        }
      }
    }
    if (step % 4 == 3) {
      [[unroll]] for (uint i = 0; i < TILES_M * TILES_N; ++i) {
        sums[i] = sums[i] + segment[i];
        segment[i] = SUM(0.0);
      }
    }
  }
  const uint first = subgroup * LM * LN, own_lane = lane % SUBGROUP;
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
      barrier();
      coopMatStoreNV(sums[i * TILES_N + j], results, first, LN, false);
      barrier();
      for (uint e = own_lane * EACH; e < LM * LN; e += SUBGROUP * EACH) {
        const uint row = row0 + (part_m * TILES_M + i) * LM + e / LN;
        const uint end = (column0 + (part_n * TILES_N + j) * LN + e % LN) / EACH;
        if (row >= rows || end >= RESULTS) continue;
        fetch_result(0, row, end);
        finish_result(0, row, end, results[first + e], results[first + e + EACH - 1]);
      }
    }
  }
}
)glsl"
