R"glsl(
// The product of matrix.comp for few rows, which wait for weights. A workgroup has a tile of TILES_M x
// (PARTS_N x TILES_N) tiles: its subgroups are PARTS_K parts of PARTS_N. Of K a part takes every
// PARTS_K-th run of RUN chunks, STEP numbers, which are whole runs, at a time; its subgroups share the rows of it, and each has
// its own columns; what is DEPTH rounds ahead is on its way while one is used. The parts' sums are added
// in order. Tiles past an edge are moved back onto it.
// Nothing is conditional on the step where several rounds are on their way: a compiler moves a
// conditional load to where it is used. What is past the end is the last chunk again, times rows of 0.
const bool ALWAYS = DEPTH > 1;
const uint TILE_ROWS = LM * TILES_M;
const uint OWN_COLUMNS = LN * TILES_N, TILE_COLUMNS = OWN_COLUMNS * PARTS_N;
const uint STEP_CHUNKS = STEP / 8;
const uint STRIDE = STEP_CHUNKS + 1;  // a chunk of padding: rows start in different banks
const uint OWN_CHUNKS = (CHUNKS + PARTS_K * RUN - 1) / (PARTS_K * RUN) * RUN;  // chunks of a part
const uint STEPS = (OWN_CHUNKS + STEP_CHUNKS - 1) / STEP_CHUNKS;
const uint ROUNDS = (STEPS + DEPTH - 1) / DEPTH * DEPTH;
const uint TURN = STEP_CHUNKS * PARTS_K;  // chunks from a part's step to its next one
const bool WHOLE = CHUNKS == STEPS * TURN;
// Whether a part has all of a step or none of it: by its one run, or with all parts. Only arithmetic:
// a driver ends where a constant is made by && of others.
const uint RUNS = STEP_CHUNKS / RUN;
const bool EVEN = CHUNKS % (STEP_CHUNKS * (1 + (PARTS_K - 1) * (2 - (RUNS + 1) / RUNS))) == 0;
const uint ROW_STRIDE = SUBGROUP / STEP_CHUNKS;  // rows that a subgroup loads at once
const uint X_STRIDE = ROW_STRIDE * PARTS_N;      // rows of a part
const uint X_LOADS = TILE_ROWS / X_STRIDE, W_LOADS = OWN_COLUMNS / ROW_STRIDE;
const uint ELEMENTS = TILE_ROWS * TILE_COLUMNS;
const uint TILE_RESULTS = TILE_COLUMNS / EACH, OWN_RESULTS = OWN_COLUMNS / EACH;
// Rows and weights of each part; then their sums.
const uint X_TILE = TILE_ROWS * STRIDE, W_TILE = OWN_COLUMNS * STRIDE;
const uint TILES = PARTS_K * (X_TILE + PARTS_N * W_TILE), SUMS = PARTS_K * ELEMENTS / 4;
shared uvec4 tiles[TILES > SUMS ? TILES : SUMS];
float sum_of(uint part, uint e) {
  const uint at = part * ELEMENTS + e;
  return uintBitsToFloat(tiles[at / 4][at % 4]);
}
void wait_for_part() {
  if (PARTS_N > 1) barrier();
  else subgroupBarrier();
}

void main() {
  const uint lane = lane_index();
  const uint part_k = gl_SubgroupID / PARTS_N, part_n = gl_SubgroupID % PARTS_N;
  const uint rows = row_count();
  const uint row0 = gl_WorkGroupID.y * TILE_ROWS;
  const uint result0 = min(gl_WorkGroupID.x * TILE_RESULTS, RESULTS - TILE_RESULTS);
  const uint chunk = gl_SubgroupInvocationID % STEP_CHUNKS;
  const uint own_place = (chunk / RUN * PARTS_K + part_k) * RUN + chunk % RUN;
  const uint first = gl_SubgroupInvocationID / STEP_CHUNKS;
  const uint x_first = first + part_n * ROW_STRIDE;
  const uint w_first = result0 + part_n * OWN_RESULTS + first;
  const uint x_base = part_k * X_TILE, w_base = PARTS_K * X_TILE + gl_SubgroupID * W_TILE;

  SUM total[TILES_M][TILES_N];
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) total[i][j] = SUM(0.0);
  }
  uvec4 xs[DEPTH][X_LOADS];
  W_CHUNK ws[DEPTH][W_LOADS];
#define FETCH(d, step) \
  { \
    const uint place = own_place + (step) * TURN; \
    const bool there = ALWAYS || EVEN || place < CHUNKS; \
    const uint at = ALWAYS ? min(place, CHUNKS - 1) : place; \
    [[unroll]] for (uint i = 0; i < W_LOADS; ++i) { \
      ws[d][i] = W_CHUNK(0); \
      const uint which = KIND_OF(first, i * ROW_STRIDE, ROW_STRIDE, OWN_RESULTS); \
      const uint column = column_of(w_first + i * ROW_STRIDE - which * OWN_RESULTS, which); \
      if (there) ws[d][i] = w_at(which, column, at); \
    } \
    [[unroll]] for (uint i = 0; i < X_LOADS; ++i) { \
      xs[d][i] = uvec4(0); \
      if (there) xs[d][i] = x_at(min(row0 + x_first + i * X_STRIDE, rows - 1), at); \
    } \
  }
#define FETCH_AHEAD(d, step) \
  if (ALWAYS) FETCH(d, step) \
  else if ((step) * TURN + part_k * RUN < CHUNKS) FETCH(d, step)
  [[unroll]] for (uint d = 0; d < DEPTH; ++d) { FETCH_AHEAD(d, d) }
  [[unroll]] for (uint n = 0; n < FINISHES; ++n) {
    const uint e = min(n * WORKGROUP + lane, ELEMENTS / EACH - 1);
    fetch_result(n, min(row0 + e / TILE_RESULTS, rows - 1), result0 + e % TILE_RESULTS);
  }
  for (uint base = 0; base < ROUNDS; base += DEPTH) {
    [[unroll]] for (uint d = 0; d < DEPTH; ++d) {
      const uint step = base + d;
      const bool there = step < STEPS && (WHOLE || own_place + step * TURN < CHUNKS);
      wait_for_part();
      [[unroll]] for (uint i = 0; i < W_LOADS; ++i) {
        tiles[w_base + (first + i * ROW_STRIDE) * STRIDE + chunk] = halves_of(ws[d][i]);
      }
      [[unroll]] for (uint i = 0; i < X_LOADS; ++i) {
        tiles[x_base + (x_first + i * X_STRIDE) * STRIDE + chunk] =
            ALWAYS && !there ? uvec4(0) : xs[d][i];
      }
      wait_for_part();
      FETCH_AHEAD(d, step + DEPTH)
      if (!ALWAYS && step * TURN + part_k * RUN >= CHUNKS) continue;
      [[unroll]] for (uint k = 0; k < STEP / LK; ++k) {
        fcoopmatNV<16, gl_ScopeSubgroup, LM, LK> a[TILES_M];
        [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
          coopMatLoadNV(a[i], tiles, x_base + i * LM * STRIDE + k * LK / 8, STRIDE, false);
        }
        [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
          fcoopmatNV<16, gl_ScopeSubgroup, LK, LN> b;
          coopMatLoadNV(b, tiles, w_base + j * LN * STRIDE + k * LK / 8, STRIDE, true);
          [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
            total[i][j] = coopMatMulAddNV(a[i], b, total[i][j]);
          }
        }
      }
    }
  }

  barrier();
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
    [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
      const uint at = part_k * ELEMENTS + i * LM * TILE_COLUMNS + part_n * OWN_COLUMNS + j * LN;
      coopMatStoreNV(total[i][j], tiles, at / 4, TILE_COLUMNS / 4, false);
    }
  }
  barrier();
  [[unroll]] for (uint n = 0; n < FINISHES; ++n) {
    const uint e = n * WORKGROUP + lane, result = e % TILE_RESULTS;
    const uint r = row0 + e / TILE_RESULTS;
    if (e < ELEMENTS / EACH && r < rows) {
      float sums[EACH];
      [[unroll]] for (uint which = 0; which < EACH; ++which) {
        const uint at = e / TILE_RESULTS * TILE_COLUMNS + result / OWN_RESULTS * OWN_COLUMNS +
                        result % OWN_RESULTS + which * OWN_RESULTS;
        sums[which] = sum_of(0, at);
        [[unroll]] for (uint s = 1; s < PARTS_K; ++s) sums[which] = sums[which] + sum_of(s, at);
      }
      finish_result(n, r, result0 + result, sums[0], sums[EACH - 1]);
    }
  }
}
)glsl"
