R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k] by matrix units, then the tape of the step. A workgroup has
// a tile of TILE_ROWS x TILE_COLUMNS and walks K in steps of STEP through shared memory; a subgroup
// owns a part of the tile and, of each step, one of PARTS_K parts, which are added in order. Any number
// of rows takes the same way, so a row's sum does not depend on its company.
const uint TILE_ROWS = LM * PARTS_M * TILES_M;
const uint TILE_COLUMNS = LN * PARTS_N * TILES_N;
const uint STEP_CHUNKS = STEP / 8;
const uint STRIDE = STEP_CHUNKS + 1;  // a chunk of padding: rows start in different banks
const uint STEPS = (CHUNKS + STEP_CHUNKS - 1) / STEP_CHUNKS;
const uint ROW_STRIDE = WORKGROUP / STEP_CHUNKS;  // rows that the workgroup loads at once
const uint X_LOADS = (TILE_ROWS + ROW_STRIDE - 1) / ROW_STRIDE;
const uint W_LOADS = (TILE_COLUMNS + ROW_STRIDE - 1) / ROW_STRIDE;
const bool WHOLE_STEPS = CHUNKS % STEP_CHUNKS == 0;
const bool WHOLE_X = TILE_ROWS % ROW_STRIDE == 0;
const bool WHOLE_W = TILE_COLUMNS % ROW_STRIDE == 0;
const uint PARTS = PARTS_M * PARTS_N;
// Rows and columns of a step; after the last one a tile of sums for each part.
const uint W_BASE = TILE_ROWS * STRIDE;
const uint TILES = W_BASE + TILE_COLUMNS * STRIDE, SUMS = PARTS * LM * LN / 4;
shared uvec4 tiles[TILES > SUMS ? TILES : SUMS];
float sum_at(uint at) { return uintBitsToFloat(tiles[at / 4][at % 4]); }

void main() {
  const uint lane = lane_index();
  const uint rows = row_count();
  const uint row0 = gl_WorkGroupID.y * TILE_ROWS, column0 = gl_WorkGroupID.x * TILE_COLUMNS;
  const uint part = gl_SubgroupID % PARTS, part_k = gl_SubgroupID / PARTS;
  const uint part_m = part / PARTS_N, part_n = part % PARTS_N;
  const uint chunk = lane % STEP_CHUNKS, first = lane / STEP_CHUNKS;

  SUM total[TILES_M][TILES_N];
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) total[i][j] = SUM(0.0);
  }
  // The next step's numbers are on their way while one is used.
  uvec4 xs[X_LOADS];
  W_CHUNK ws[W_LOADS];
#define FETCH(step) \
  { \
    const uint at = (step) * STEP_CHUNKS + chunk; \
    const bool there = WHOLE_STEPS || at < CHUNKS; \
    [[unroll]] for (uint i = 0; i < X_LOADS; ++i) { \
      xs[i] = uvec4(0); \
      if (there) xs[i] = x_at(min(row0 + first + i * ROW_STRIDE, rows - 1), at); \
    } \
    [[unroll]] for (uint i = 0; i < W_LOADS; ++i) { \
      const uint column = min(column0 + first + i * ROW_STRIDE, piece.column_piece - 1); \
      ws[i] = W_CHUNK(0); \
      if (there) ws[i] = w_at(column, at); \
    } \
  }
  FETCH(0)
  for (uint base = 0; base < STEPS; base += UNROLL) {
    [[unroll]] for (uint turn = 0; turn < UNROLL; ++turn) {
      const uint step = base + turn;
      barrier();
      [[unroll]] for (uint i = 0; i < X_LOADS; ++i) {
        const uint row = first + i * ROW_STRIDE;
        if (WHOLE_X || row < TILE_ROWS) tiles[row * STRIDE + chunk] = xs[i];
      }
      [[unroll]] for (uint i = 0; i < W_LOADS; ++i) {
        const uint column = first + i * ROW_STRIDE;
        if (WHOLE_W || column < TILE_COLUMNS) tiles[W_BASE + column * STRIDE + chunk] = halves_of(ws[i]);
      }
      barrier();
      if (turn + 1 < UNROLL || step + 1 < STEPS) FETCH(step + 1)
      [[unroll]] for (uint n = 0; n < STEP / LK / PARTS_K; ++n) {
        const uint k = (part_k * (STEP / LK / PARTS_K) + n) * (LK / 8);
        fcoopmatNV<16, gl_ScopeSubgroup, LM, LK> a[TILES_M];
        [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
          coopMatLoadNV(a[i], tiles, (part_m * TILES_M + i) * LM * STRIDE + k, STRIDE, false);
        }
        [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
          const uint column = (part_n * TILES_N + j) * LN;
          fcoopmatNV<16, gl_ScopeSubgroup, LK, LN> b;
          coopMatLoadNV(b, tiles, W_BASE + column * STRIDE + k, STRIDE, true);
          [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
            total[i][j] = coopMatMulAddNV(a[i], b, total[i][j]);
          }
        }
      }
    }
  }
  barrier();

  const uint own = part * LM * LN;
  if (PARTS_K > 1) {
    [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
      [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
        for (uint other = 1; other < PARTS_K; ++other) {
          barrier();
          if (part_k == other) coopMatStoreNV(total[i][j], tiles, own / 4, LN / 4, false);
          barrier();
          if (part_k == 0) {
            SUM more;
            coopMatLoadNV(more, tiles, own / 4, LN / 4, false);
            total[i][j] = total[i][j] + more;
          }
        }
      }
    }
    barrier();
    if (part_k > 0) return;
  }
  // One copy of what follows: with one for each tile a driver compiled three times as long.
  [[dont_unroll]] for (uint t = 0; t < TILES_M * TILES_N; ++t) {
    SUM sum = total[0][0];
    [[unroll]] for (uint i = 1; i < TILES_M * TILES_N; ++i) {
      if (t == i) sum = total[i / TILES_N][i % TILES_N];
    }
    const uint row1 = row0 + (part_m * TILES_M + t / TILES_N) * LM;
    const uint column1 = column0 + (part_n * TILES_N + t % TILES_N) * LN;
    if (row1 >= rows || column1 >= piece.column_piece) continue;
    const bool whole = row1 + LM <= rows && column1 + LN <= piece.column_piece;
    if (whole && takes_tile(row1, piece.column_base + column1)) {
      finish_tile(row1, piece.column_base + column1, sum);
      continue;
    }
    // Through shared memory to the subgroup's lanes.
    subgroupBarrier();
    coopMatStoreNV(sum, tiles, own / 4, LN / 4, false);
    subgroupBarrier();
    [[dont_unroll]] for (uint e = gl_SubgroupInvocationID; e < LM * LN; e += SUBGROUP) {
      const uint r = row1 + e / LN, column = column1 + e % LN;
      if (r < rows && column < piece.column_piece) {
        fetch(0, r, piece.column_base + column);
        finish(0, r, piece.column_base + column, sum_at(own + e));
      }
    }
  }
}
)glsl"
