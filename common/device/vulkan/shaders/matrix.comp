R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k] by matrix units, then the tape of the step (finish()). x is
// rounded to halves, w has halves, sums are floats. A workgroup has a tile of TILE_ROWS x TILE_COLUMNS
// and walks K in steps of STEP through shared memory; each of its subgroups owns a part of the tile.
// Any number of rows takes the same way, so a row's sum does not depend on its company. Dimensions are
// named LM, LN and LK because the use of a matrix is read off its dimensions' names (spirv.cpp).
layout(constant_id = 5) const uint K = 8;
layout(constant_id = 12) const uint LM = 16;
layout(constant_id = 13) const uint LN = 16;
layout(constant_id = 14) const uint LK = 16;
layout(constant_id = 15) const uint PARTS_M = 2;  // subgroups along the rows
layout(constant_id = 16) const uint PARTS_N = 4;  // and along the columns
layout(constant_id = 17) const uint TILES_M = 2;  // tiles of 16 x 16 that a subgroup has
layout(constant_id = 18) const uint TILES_N = 2;
layout(set = 0, binding = 1) restrict readonly buffer X1 { float x1[]; };
layout(set = 0, binding = 1) restrict readonly buffer X4 { vec4 x4[]; };
layout(set = 0, binding = W_BINDING) restrict readonly buffer W { uvec4 w[]; };

const uint TILE_ROWS = LM * PARTS_M * TILES_M;
const uint TILE_COLUMNS = LN * PARTS_N * TILES_N;
const uint STEP = 64;                  // of K
const uint STEP_CHUNKS = STEP / 8;     // uvec4, 8 halves each
const uint STRIDE = STEP_CHUNKS + 1;   // a chunk of padding: rows start in different banks
const uint CHUNKS = (K + 7) / 8;
const uint STEPS = (CHUNKS + STEP_CHUNKS - 1) / STEP_CHUNKS;
const uint ROW_STRIDE = WORKGROUP / STEP_CHUNKS;  // rows that the workgroup loads at once
const uint X_LOADS = (TILE_ROWS + ROW_STRIDE - 1) / ROW_STRIDE;
const uint W_LOADS = (TILE_COLUMNS + ROW_STRIDE - 1) / ROW_STRIDE;
shared uvec4 x_tile[TILE_ROWS * STRIDE];
shared uvec4 w_tile[TILE_COLUMNS * STRIDE];
shared float sums[SUBGROUPS * LM * LN];

float element(uint row, uint k) { return k < K ? x1[row * K + k] : 0.0; }
// 8 elements of a row as halves.
uvec4 load_x(uint row, uint chunk) {
  const uint k = chunk * 8;
  vec4 a, b;
  if (K % 8 == 0) {
    a = x4[row * (K / 4) + k / 4];
    b = x4[row * (K / 4) + k / 4 + 1];
  } else {
    a = vec4(element(row, k), element(row, k + 1), element(row, k + 2), element(row, k + 3));
    b = vec4(element(row, k + 4), element(row, k + 5), element(row, k + 6), element(row, k + 7));
  }
  return uvec4(packHalf2x16(a.xy), packHalf2x16(a.zw), packHalf2x16(b.xy), packHalf2x16(b.zw));
}

void main() {
  const uint lane = lane_index();
  const uint rows = row_count();
  const uint row0 = gl_WorkGroupID.y * TILE_ROWS, column0 = gl_WorkGroupID.x * TILE_COLUMNS;
  if (row0 >= rows) return;
  const uint part_m = gl_SubgroupID / PARTS_N, part_n = gl_SubgroupID % PARTS_N;
  const uint chunk = lane % STEP_CHUNKS, first = lane / STEP_CHUNKS;

  fcoopmatNV<32, gl_ScopeSubgroup, LM, LN> total[TILES_M][TILES_N];
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
      total[i][j] = fcoopmatNV<32, gl_ScopeSubgroup, LM, LN>(0.0);
    }
  }
  uvec4 x[X_LOADS], v[W_LOADS];
#define FETCH(step) \
  { \
    const uint at = (step) * STEP_CHUNKS + chunk; \
    const bool there = CHUNKS % STEP_CHUNKS == 0 || at < CHUNKS; \
    [[unroll]] for (uint i = 0; i < X_LOADS; ++i) { \
      const uint row = row0 + first + i * ROW_STRIDE; \
      x[i] = uvec4(0); \
      if (there && row < rows) x[i] = load_x(row, at); \
    } \
    [[unroll]] for (uint i = 0; i < W_LOADS; ++i) { \
      const uint column = min(column0 + first + i * ROW_STRIDE, piece.column_piece - 1); \
      v[i] = uvec4(0); \
      if (there) v[i] = w[column * CHUNKS + at]; \
    } \
  }
  FETCH(0)
  for (uint step = 0; step < STEPS; ++step) {
    barrier();
    [[unroll]] for (uint i = 0; i < X_LOADS; ++i) {
      const uint row = first + i * ROW_STRIDE;
      if (TILE_ROWS % ROW_STRIDE == 0 || row < TILE_ROWS) x_tile[row * STRIDE + chunk] = x[i];
    }
    [[unroll]] for (uint i = 0; i < W_LOADS; ++i) {
      const uint column = first + i * ROW_STRIDE;
      if (TILE_COLUMNS % ROW_STRIDE == 0 || column < TILE_COLUMNS) {
        w_tile[column * STRIDE + chunk] = v[i];
      }
    }
    barrier();
    if (step + 1 < STEPS) FETCH(step + 1)
    [[unroll]] for (uint k = 0; k < STEP / LK; ++k) {
      fcoopmatNV<16, gl_ScopeSubgroup, LM, LK> a[TILES_M];
      [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
        coopMatLoadNV(a[i], x_tile, (part_m * TILES_M + i) * LM * STRIDE + k * LK / 8, STRIDE, false);
      }
      [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
        fcoopmatNV<16, gl_ScopeSubgroup, LK, LN> b;
        coopMatLoadNV(b, w_tile, (part_n * TILES_N + j) * LN * STRIDE + k * LK / 8, STRIDE, true);
        [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
          total[i][j] = coopMatMulAddNV(a[i], b, total[i][j]);
        }
      }
    }
  }

  // Through shared memory to the lanes, a tile of each subgroup at a time.
  const uint own = gl_SubgroupID * LM * LN;
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
      barrier();
      coopMatStoreNV(total[i][j], sums, own, LN, false);
      barrier();
      const uint row1 = row0 + (part_m * TILES_M + i) * LM;
      const uint column1 = column0 + (part_n * TILES_N + j) * LN;
      for (uint e = gl_SubgroupInvocationID; e < LM * LN; e += SUBGROUP) {
        const uint r = row1 + e / LN, column = column1 + e % LN;
        if (r < rows && column < piece.column_piece) {
          fetch(r, piece.column_base + column);
          finish(r, piece.column_base + column, sums[own + e]);
        }
      }
    }
  }
}
)glsl"
