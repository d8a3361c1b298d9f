R"glsl(
// The product of int8_product.comp for many rows, which int8_round.comp rounded, with the same bits. A
// workgroup has a tile of the result, each lane 4 rows by 4 columns of it; 4 blocks of the tile's rows and
// columns go through shared memory at a time.
layout(set = 0, binding = 1) restrict readonly buffer X { uvec4 x_vectors[]; };
const uint OWN = 4, COLUMN_LANES = 8, ROW_LANES = WORKGROUP / COLUMN_LANES;
const uint TILE_ROWS = OWN * ROW_LANES, TILE_COLUMNS = OWN * COLUMN_LANES;
const uint BLOCKS = SEGMENT_BLOCKS / 2;
shared uvec4 x_tile[2 * BLOCKS * TILE_ROWS], w_tile[2 * BLOCKS * TILE_COLUMNS];
shared uvec4 x_tile_scales[TILE_ROWS], x_tile_sums[TILE_ROWS], w_words[TILE_COLUMNS];

// Column j of a lane: pairs stay together.
uint position_of(uint column_lane, uint j) { return (column_lane + COLUMN_LANES * (j / EACH)) * EACH + j % EACH; }

void main() {
  const uint lane = gl_LocalInvocationIndex, column_lane = lane % COLUMN_LANES, row_lane = lane / COLUMN_LANES;
  const uint row0 = gl_WorkGroupID.x * TILE_ROWS, column0 = gl_WorkGroupID.y * TILE_COLUMNS;
  if (!has_row(row0)) return;
  const uint rows = row_count();
  float segment[OWN * OWN], sums[OWN * OWN];
  [[unroll]] for (uint i = 0; i < OWN * OWN; ++i) segment[i] = sums[i] = 0.0;
  for (uint s = 0; s < SEGMENTS; ++s) {
    for (uint part = 0; part < 2; ++part) {
      barrier();
      for (uint i = lane; i < TILE_ROWS * 10; i += WORKGROUP) {
        const uint row = i / 10, v = i % 10;
        const uint at = (min(row0 + row, rows - 1) * SEGMENTS + s) * SEGMENT_VECTORS;
        const uvec4 vector = x_vectors[at + (v < 8 ? 8 * part + v : 16 + 2 * (v - 8) + part)];
        if (v < 8) x_tile[v * TILE_ROWS + row] = vector;
        else if (v == 8) x_tile_scales[row] = vector;
        else x_tile_sums[row] = vector;
      }
      for (uint i = lane; i < TILE_COLUMNS * (VECTORS / 2 + 1); i += WORKGROUP) {
        const uint slot = i % TILE_COLUMNS, v = i / TILE_COLUMNS;
        const uint position = column0 + position_of(slot % COLUMN_LANES, slot / COLUMN_LANES);
        const uint which = position % EACH, column = column_of(position / EACH, which);
        if (v == VECTORS / 2) {
          w_words[slot] = OF_MATRIX(which, scale_fours, scales_at(column, s, part));
        } else {
          const uvec4 vector = OF_MATRIX(which, w, vector_at(column, s, VECTORS / 2 * part + v));
          if (IN_BYTES) {
            w_tile[v * TILE_COLUMNS + slot] = vector;
          } else {
            w_tile[2 * v * TILE_COLUMNS + slot] = vector & 0x0f0f0f0fu;
            w_tile[(2 * v + 1) * TILE_COLUMNS + slot] = vector >> 4 & 0x0f0f0f0fu;
          }
        }
      }
      barrier();
      [[unroll]] for (uint b = 0; b < BLOCKS; ++b) {
        uvec4 low[OWN], high[OWN];
        [[unroll]] for (uint i = 0; i < OWN; ++i) {
          low[i] = x_tile[2 * b * TILE_ROWS + row_lane + i * ROW_LANES];
          high[i] = x_tile[(2 * b + 1) * TILE_ROWS + row_lane + i * ROW_LANES];
        }
        [[unroll]] for (uint j = 0; j < OWN; ++j) {
          const uint slot = column_lane + j * COLUMN_LANES;
          const uvec4 first = w_tile[2 * b * TILE_COLUMNS + slot];
          const uvec4 second = w_tile[(2 * b + 1) * TILE_COLUMNS + slot];
          const uint word = w_words[slot][b], beside = w_words[slot][b ^ 1u];
          [[unroll]] for (uint i = 0; i < OWN; ++i) {
            const uint row = row_lane + i * ROW_LANES;
            segment[i * OWN + j] = with_block(
                segment[i * OWN + j], dot_of_vectors(first, low[i]), dot_of_vectors(second, high[i]), word,
                beside, (b & 1u) != 0u, uintBitsToFloat(x_tile_scales[row][b]), int(x_tile_sums[row][b]));
          }
        }
      }
    }
    [[unroll]] for (uint i = 0; i < OWN * OWN; ++i) {
      sums[i] = sums[i] + segment[i];
      segment[i] = 0.0;
    }
  }
  [[unroll]] for (uint i = 0; i < OWN; ++i) {
    [[unroll]] for (uint j = 0; j < OWN; j += EACH) {
      const uint row = row0 + row_lane + i * ROW_LANES, end = (column0 + position_of(column_lane, j)) / EACH;
      if (row >= rows || end >= RESULTS) continue;
      fetch_result(0, row, end);
      finish_result(0, row, end, sums[i * OWN + j], sums[i * OWN + j + EACH - 1]);
    }
  }
}
)glsl"
