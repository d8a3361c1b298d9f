R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k], then the tape of the step (finish()).
// LANES lanes share an output. K is cut into chunks of 8; lane t sums chunks t, t + LANES, ... in
// order by fma into one accumulator, and the lanes are added in pairs: neighbours, then pairs of
// pairs. That order depends on LANES alone: BLOCK (rows a workgroup takes), COLUMNS_PER_LANE and
// UNROLL (chunks in flight) do not change it.
vec4 half4(uvec2 bits) { return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y)); }
vec4 brain4(uvec2 bits) {
  return uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16, bits.y & 0xffff0000u));
}
float dot4(vec4 a, vec4 b, float sum) {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
const uint VECTORS = UNROLL * COLUMNS_PER_LANE * PER_CHUNK;
const uint BATCH = LANES * UNROLL;  // chunks of a column on their way at once
const uint BATCHES = (CHUNKS + BATCH - 1) / BATCH;
const bool EVEN = CHUNKS % BATCH == 0;
// Chunks of a batch of each column; past the end the last one, which is not used.
#define LOAD(to, batch) \
  [[unroll]] for (uint u = 0; u < UNROLL; ++u) { \
    const uint at = (batch) * BATCH + u * LANES + t; \
    const uint c = EVEN ? at : min(at, CHUNKS - 1); \
    [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) { \
      [[unroll]] for (uint p = 0; p < PER_CHUNK; ++p) { \
        to[(u * COLUMNS_PER_LANE + m) * PER_CHUNK + p] = W_VECTOR(w_row[m] + c * PER_CHUNK + p); \
      } \
    } \
  }

void main() {
  const uint lane = lane_index();
  const uint t = lane % LANES;
  const uint rows = EXACT_ROWS != 0 ? EXACT_ROWS : row_count();
  const uint row0 = gl_WorkGroupID.y * BLOCK;
  const uint column0 = (gl_WorkGroupID.x * GROUPS + lane / LANES) * COLUMNS_PER_LANE;
  if (row0 >= rows) return;

  uint row[BLOCK], w_row[COLUMNS_PER_LANE];
  float sums[SUMS];
  [[unroll]] for (uint n = 0; n < BLOCK; ++n) row[n] = min(row0 + n, rows - 1);
  [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) {
    w_row[m] = min(column0 + m, piece.column_piece - 1) * ROW_VECTORS;
  }
  [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0.0;

  // The first chunks are on their way while the row is staged, the next ones while these are used.
  uvec4 v[VECTORS], next[VECTORS];
  LOAD(v, 0)
  if (SUMS <= LANES) {
    const uint r = row0 + t / COLUMNS_PER_LANE, column = column0 + t % COLUMNS_PER_LANE;
    if (t < SUMS && r < rows && column < piece.column_piece) fetch(0, r, piece.column_base + column);
  }
#ifdef STAGED
  for (uint k = K + lane; k < CHUNKS * 8; k += WORKGROUP) put_x(k, 0.0);
  stage(row0, lane);
  barrier();
#endif
  for (uint batch = 0; batch < BATCHES; ++batch) {
    if (BATCHES > 1 && batch + 1 < BATCHES) { LOAD(next, batch + 1) }
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
      const uint c = batch * BATCH + u * LANES + t;
      if (EVEN || c < CHUNKS) {
        vec4 low[COLUMNS_PER_LANE], high[COLUMNS_PER_LANE];
        [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) {
          const uint at = (u * COLUMNS_PER_LANE + m) * PER_CHUNK;
#ifdef IN_BLOCKS
          low[m] = quarter_of_w(v[at], 0);
          high[m] = quarter_of_w(v[at], 1);
#else
          if (W_TYPE == 0) {
            low[m] = uintBitsToFloat(v[at]);
            high[m] = uintBitsToFloat(v[at + PER_CHUNK - 1]);
          } else if (W_TYPE == 1) {
            low[m] = half4(v[at].xy);
            high[m] = half4(v[at].zw);
          } else {
            low[m] = brain4(v[at].xy);
            high[m] = brain4(v[at].zw);
          }
#endif
        }
        [[unroll]] for (uint n = 0; n < BLOCK; ++n) {
#ifdef STAGED
          const vec4 a = x_low[c], b = x_high[c];
#else
          const vec4 a = load_x(row[n], c * 8), b = load_x(row[n], c * 8 + 4);
#endif
          [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) {
            const uint i = n * COLUMNS_PER_LANE + m;
            sums[i] = dot4(high[m], b, dot4(low[m], a, sums[i]));
          }
        }
      }
    }
    if (BATCHES > 1) {
      [[unroll]] for (uint i = 0; i < VECTORS; ++i) v[i] = next[i];
    }
  }

  [[unroll]] for (uint offset = 1; offset < REACH; offset <<= 1) {
    [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = sums[i] + lane_xor(sums[i], offset);
  }
  if (LANES > REACH && SUBGROUP > 1) {
    barrier();
    if (lane % SUBGROUP == 0) {
      [[unroll]] for (uint i = 0; i < SUMS; ++i) lane_sums[i * WORKGROUP + lane] = sums[i];
    }
    barrier();
    [[unroll]] for (uint i = 0; i < SUMS; ++i) {
      float parts[LANES / REACH];
      [[unroll]] for (uint j = 0; j < LANES / REACH; ++j) {
        parts[j] = lane_sums[i * WORKGROUP + lane - t + j * REACH];
      }
      [[unroll]] for (uint step = 1; step < LANES / REACH; step <<= 1) {
        [[unroll]] for (uint j = 0; j + step < LANES / REACH; j += 2 * step) {
          parts[j] = parts[j] + parts[j + step];
        }
      }
      sums[i] = parts[0];
    }
  } else if (LANES > REACH) {
    for (uint offset = 1; offset < LANES; offset <<= 1) {
      barrier();
      [[unroll]] for (uint i = 0; i < SUMS; ++i) lane_sums[i * WORKGROUP + lane] = sums[i];
      barrier();
      [[unroll]] for (uint i = 0; i < SUMS; ++i) {
        sums[i] = sums[i] + lane_sums[i * WORKGROUP + (lane ^ offset)];
      }
    }
  }

  // Every lane has every sum; each finishes its share.
  for (uint first = 0; first < SUMS; first += LANES) {
    float product = 0.0;
    [[unroll]] for (uint i = 0; i < SUMS; ++i) {
      if (i == first + t) product = sums[i];
    }
    const uint r = row0 + (first + t) / COLUMNS_PER_LANE;
    const uint column = column0 + (first + t) % COLUMNS_PER_LANE;
    if (first + t < SUMS && r < rows && column < piece.column_piece) {
      if (SUMS > LANES) fetch(0, r, piece.column_base + column);
      finish(0, r, piece.column_base + column, product);
    }
  }
}
)glsl"
