R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k] by matrix units, then the tape of the step. A workgroup has
// a tile of TILE_ROWS x TILE_COLUMNS and walks K in steps of STEP through shared memory; a subgroup
// owns a part of the tile and, of each step, one of PARTS_K parts, which are added in order; or K is split in
// SPLIT_K parts over workgroups, with the same sums. Any number of rows takes the same way, so a row's sum
// does not depend on its company.
const uint TILE_ROWS = LM * PARTS_M * TILES_M;
const uint TILE_COLUMNS = LN * PARTS_N * TILES_N;
const uint STEP_CHUNKS = STEP / 8;
const uint STRIDE = STEP_CHUNKS + 1;  // a chunk of padding: rows start in different banks
const uint TURN = STEP_CHUNKS * SPLIT_K;  // chunks from a part's step to its next one
const uint STEPS = (CHUNKS + TURN - 1) / TURN;
const uint ROW_STRIDE = WORKGROUP / STEP_CHUNKS;  // rows that the workgroup loads at once
const uint X_LOADS = (TILE_ROWS + ROW_STRIDE - 1) / ROW_STRIDE;
const uint W_LOADS = (TILE_COLUMNS + ROW_STRIDE - 1) / ROW_STRIDE;
const bool WHOLE_STEPS = CHUNKS % TURN == 0;
const bool WHOLE_X = TILE_ROWS % ROW_STRIDE == 0;
const bool WHOLE_W = TILE_COLUMNS % ROW_STRIDE == 0;
const uint PARTS = PARTS_M * PARTS_N;
const uint TILE_RESULTS = TILE_COLUMNS / EACH, OWN_TILES = TILES_N / EACH;
// Rows and columns of a step; after the last one a tile of sums for each part, or two.
const uint W_BASE = TILE_ROWS * STRIDE;
const uint TILES = W_BASE + TILE_COLUMNS * STRIDE, SUMS = EACH * PARTS * LM * LN / 4;
shared uvec4 tiles[TILES > SUMS ? TILES : SUMS];
float sum_at(uint at) { return uintBitsToFloat(tiles[at / 4][at % 4]); }

// Where K is split over workgroups they leave their sums here, tile by tile, and the last one adds them.
layout(set = 0, binding = SUMS_BINDING) coherent buffer Sums { float sums[]; };
layout(set = 0, binding = SUMS_BINDING) coherent buffer Counts { uint counts[]; };
shared bool is_last;
const uint SUBGROUP_TILES = TILES_M * TILES_N;
#define FOR_TILES \
  [[unroll]] for (uint i = 0; i < TILES_M; ++i) \
    [[unroll]] for (uint j = 0; j < TILES_N; ++j)
uint place_of_sum(uint split, uint tile) {
  const uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
  const uint subgroup = (group * SPLIT_K + split) * SUBGROUPS + gl_SubgroupID;
  return FIRST_SUM + (subgroup * SUBGROUP_TILES + tile) * (LM * LN);
}
// Whether the sums of all parts of this tile are there; then they are seen.
bool is_last_part() {
  const int memory = gl_StorageSemanticsBuffer | gl_StorageSemanticsShared;
  const int order = gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible;
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeQueueFamily, memory, order);
  if (lane_index() == 0) {
    const uint at = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    is_last = atomicAdd(counts[at], 1u, gl_ScopeQueueFamily, gl_StorageSemanticsBuffer, order) + 1 == SPLIT_K;
    if (is_last) counts[at] = 0;  // for the next step
  }
  controlBarrier(gl_ScopeWorkgroup, gl_ScopeQueueFamily, memory, order);
  return is_last;
}

void main() {
  const uint lane = lane_index();
  const uint rows = row_count();
  const uint row0 = gl_WorkGroupID.y * TILE_ROWS, result0 = gl_WorkGroupID.x * TILE_RESULTS;
  const uint part = gl_SubgroupID % PARTS, part_k = gl_SubgroupID / PARTS;
  const uint part_m = part / PARTS_N, part_n = part % PARTS_N;
  const uint chunk = lane % STEP_CHUNKS, first = lane / STEP_CHUNKS;
  const uint own_place = (chunk / RUN * SPLIT_K + gl_WorkGroupID.z) * RUN + chunk % RUN;

  SUM total[TILES_M][TILES_N];
  FOR_TILES total[i][j] = SUM(0.0);
  // The next step's numbers are on their way while one is used.
  uvec4 xs[X_LOADS];
  W_CHUNK ws[W_LOADS];
#define FETCH(step) \
  { \
    const uint at = (step) * TURN + own_place; \
    const bool there = WHOLE_STEPS || at < CHUNKS; \
    [[unroll]] for (uint i = 0; i < X_LOADS; ++i) { \
      xs[i] = uvec4(0); \
      if (there) xs[i] = x_at(min(row0 + first + i * ROW_STRIDE, rows - 1), at); \
    } \
    [[unroll]] for (uint i = 0; i < W_LOADS; ++i) { \
      const uint which = KIND_OF(first, i * ROW_STRIDE, ROW_STRIDE, TILE_RESULTS); \
      const uint result = result0 + first + i * ROW_STRIDE - which * TILE_RESULTS; \
      ws[i] = W_CHUNK(0); \
      if (there) ws[i] = w_at(which, column_of(result, which), at); \
    } \
  }
  FETCH(0)
  for (uint step = 0; step < STEPS; ++step) {
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
    if (step + 1 < STEPS) FETCH(step + 1)
    [[unroll]] for (uint n = 0; n < STEP / LK / PARTS_K; ++n) {
      const uint k = (part_k * (STEP / LK / PARTS_K) + n) * (LK / 8);
      fcoopmatNV<16, gl_ScopeSubgroup, LM, LK> a[TILES_M];
      [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
        coopMatLoadNV(a[i], tiles, (part_m * TILES_M + i) * LM * STRIDE + k, STRIDE, false);
      }
      [[unroll]] for (uint j = 0; j < TILES_N; ++j) {
        const uint column = j % EACH * TILE_RESULTS + (part_n * OWN_TILES + j / EACH) * LN;
        fcoopmatNV<16, gl_ScopeSubgroup, LK, LN> b;
        coopMatLoadNV(b, tiles, W_BASE + column * STRIDE + k, STRIDE, true);
        [[unroll]] for (uint i = 0; i < TILES_M; ++i) {
          total[i][j] = coopMatMulAddNV(a[i], b, total[i][j]);
        }
      }
    }
  }
  if (SPLIT_K > 1) {
    FOR_TILES {
      const uint at = place_of_sum(gl_WorkGroupID.z, i * TILES_N + j);
      coopMatStoreNV(total[i][j], sums, at, LN, false);
    }
    if (!is_last_part()) return;
    FOR_TILES {
      const uint tile = i * TILES_N + j;
      coopMatLoadNV(total[i][j], sums, place_of_sum(0, tile), LN, false);
      for (uint split = 1; split < SPLIT_K; ++split) {
        SUM more;
        coopMatLoadNV(more, sums, place_of_sum(split, tile), LN, false);
        total[i][j] = total[i][j] + more;
      }
    }
  }
  barrier();

  const uint own = EACH * part * LM * LN, other_own = own + (EACH - 1) * LM * LN;
  if (PARTS_K > 1) {
    FOR_TILES {
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
    barrier();
    if (part_k > 0) return;
  }
  // One copy of what follows: with one for each tile a driver compiled three times as long.
  [[dont_unroll]] for (uint t = 0; t < TILES_M * OWN_TILES; ++t) {
    SUM sum = total[0][0], other = total[0][EACH - 1];
    [[unroll]] for (uint i = 1; i < TILES_M * OWN_TILES; ++i) {
      if (t == i) {
        sum = total[i / OWN_TILES][i % OWN_TILES * EACH];
        other = total[i / OWN_TILES][i % OWN_TILES * EACH + EACH - 1];
      }
    }
    const uint row1 = row0 + (part_m * TILES_M + t / OWN_TILES) * LM;
    const uint result1 = result0 + (part_n * OWN_TILES + t % OWN_TILES) * LN;
    if (row1 >= rows || result1 >= RESULTS) continue;
#ifndef ROTATED
    const bool whole = row1 + LM <= rows && result1 + LN <= RESULTS;
    if (whole && takes_tile(row1, piece.column_base + result1)) {
      finish_tile(row1, piece.column_base + result1, sum, other);
      continue;
    }
#endif
    // Through shared memory to the subgroup's lanes.
    subgroupBarrier();
    coopMatStoreNV(sum, tiles, own / 4, LN / 4, false);
    if (EACH > 1) coopMatStoreNV(other, tiles, other_own / 4, LN / 4, false);
    subgroupBarrier();
    [[dont_unroll]] for (uint e = gl_SubgroupInvocationID; e < LM * LN; e += SUBGROUP) {
      const uint r = row1 + e / LN, result = result1 + e % LN;
      if (r < rows && result < RESULTS) {
        fetch_result(0, r, result);
        finish_result(0, r, result, sum_at(own + e), sum_at(other_own + e));
      }
    }
  }
}
)glsl"
