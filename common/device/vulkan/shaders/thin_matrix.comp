R"glsl(
// The same product for few rows, which wait for weights. A workgroup has a tile of TILES_M x TILES_N;
// its subgroups take K in steps of STEP in turn, each through shared memory of its own, two steps on
// their way while one is used, and their sums are added in order. Tiles past an edge are moved back
// onto it.
const uint STEP = 64;
const uint TILE_ROWS = LM * TILES_M;
const uint TILE_COLUMNS = LN * TILES_N;
const uint STEP_CHUNKS = STEP / 8;
const uint STRIDE = STEP_CHUNKS + 1;  // a chunk of padding: rows start in different banks
const uint STEPS = (CHUNKS + STEP_CHUNKS - 1) / STEP_CHUNKS;
const bool WHOLE_STEPS = CHUNKS % STEP_CHUNKS == 0;
const uint ROW_STRIDE = SUBGROUP / STEP_CHUNKS;  // rows that a subgroup loads at once
const uint X_LOADS = TILE_ROWS / ROW_STRIDE, W_LOADS = TILE_COLUMNS / ROW_STRIDE;
const uint ELEMENTS = TILE_ROWS * TILE_COLUMNS;
shared uvec4 x_tile[SUBGROUPS * TILE_ROWS * STRIDE];
shared uvec4 w_tile[SUBGROUPS * TILE_COLUMNS * STRIDE];
shared float sums[SUBGROUPS * ELEMENTS];

void main() {
  const uint lane = lane_index(), own = gl_SubgroupID;
  const uint rows = row_count();
  const uint row0 = gl_WorkGroupID.y * TILE_ROWS;
  const uint column0 = min(gl_WorkGroupID.x * TILE_COLUMNS, piece.column_piece - TILE_COLUMNS);
  if (row0 >= rows) return;
  const uint chunk = gl_SubgroupInvocationID % STEP_CHUNKS;
  const uint first = gl_SubgroupInvocationID / STEP_CHUNKS;
  const uint x_base = own * TILE_ROWS * STRIDE, w_base = own * TILE_COLUMNS * STRIDE;

  SUM total[TILES_M][TILES_N];
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) total[i][j] = SUM(0.0);
  }
#define FETCH(xs, ws, step) \
  { \
    const uint at = (step) * STEP_CHUNKS + chunk; \
    const bool there = (step) < STEPS && (WHOLE_STEPS || at < CHUNKS); \
    [[unroll]] for (uint i = 0; i < W_LOADS; ++i) { \
      ws[i] = uvec4(0); \
      if (there) ws[i] = w[(column0 + first + i * ROW_STRIDE) * CHUNKS + at]; \
    } \
    [[unroll]] for (uint i = 0; i < X_LOADS; ++i) { \
      xs[i] = uvec4(0); \
      if (there) xs[i] = x[min(row0 + first + i * ROW_STRIDE, rows - 1) * CHUNKS + at]; \
    } \
  }
#define USE(xs, ws, next) \
  subgroupBarrier(); \
  [[unroll]] for (uint i = 0; i < W_LOADS; ++i) { \
    w_tile[w_base + (first + i * ROW_STRIDE) * STRIDE + chunk] = ws[i]; \
  } \
  [[unroll]] for (uint i = 0; i < X_LOADS; ++i) { \
    x_tile[x_base + (first + i * ROW_STRIDE) * STRIDE + chunk] = xs[i]; \
  } \
  subgroupBarrier(); \
  FETCH(xs, ws, next) \
  [[unroll]] for (uint k = 0; k < STEP / LK; ++k) { \
    fcoopmatNV<16, gl_ScopeSubgroup, LM, LK> a[TILES_M]; \
    [[unroll]] for (uint i = 0; i < TILES_M; ++i) { \
      coopMatLoadNV(a[i], x_tile, x_base + i * LM * STRIDE + k * LK / 8, STRIDE, false); \
    } \
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) { \
      fcoopmatNV<16, gl_ScopeSubgroup, LK, LN> b; \
      coopMatLoadNV(b, w_tile, w_base + j * LN * STRIDE + k * LK / 8, STRIDE, true); \
      [[unroll]] for (uint i = 0; i < TILES_M; ++i) { \
        total[i][j] = coopMatMulAddNV(a[i], b, total[i][j]); \
      } \
    } \
  }
  uvec4 even_x[X_LOADS], even_w[W_LOADS], odd_x[X_LOADS], odd_w[W_LOADS];
  FETCH(even_x, even_w, own)
  FETCH(odd_x, odd_w, own + SUBGROUPS)
  [[unroll]] for (uint n = 0; n < FETCHES; ++n) {
    const uint e = min(n * WORKGROUP + lane, ELEMENTS - 1);
    fetch(n, min(row0 + e / TILE_COLUMNS, rows - 1), piece.column_base + column0 + e % TILE_COLUMNS);
  }
  for (uint step = own; step < STEPS; step += 2 * SUBGROUPS) {
    USE(even_x, even_w, step + 2 * SUBGROUPS)
    USE(odd_x, odd_w, step + 3 * SUBGROUPS)
  }

  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
      const uint at = own * ELEMENTS + i * LM * TILE_COLUMNS + j * LN;
      coopMatStoreNV(total[i][j], sums, at, TILE_COLUMNS, false);
    }
  }
  barrier();
  [[unroll]] for (uint n = 0; n < FETCHES; ++n) {
    const uint e = n * WORKGROUP + lane;
    const uint r = row0 + e / TILE_COLUMNS;
    if (e < ELEMENTS && r < rows) {
      float sum = sums[e];
      [[unroll]] for (uint s = 1; s < SUBGROUPS; ++s) sum = sum + sums[s * ELEMENTS + e];
      finish(n, r, piece.column_base + column0 + e % TILE_COLUMNS, sum);
    }
  }
}
)glsl"
