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
const uint VECTORS = COLUMNS_PER_LANE * PER_CHUNK;  // of a chunk
const uint FULL = CHUNKS / LANES;                   // chunks that every lane has
const bool REST = CHUNKS % LANES != 0;              // some have one more
// Chunks are taken UNROLL at a time, in rounds. One by one the last round is of some lanes only;
// otherwise UNROLL divides FULL, and what is left follows.
const uint ALL = (CHUNKS + LANES - 1) / LANES;
const uint BATCHES = FULL / UNROLL;
const uint ROUNDS = UNROLL == 1 ? ALL : BATCHES;
// One copy of the code for all rounds: instructions are fetched anew in each dispatch. Two and four
// rows are faster, by 5 to 9 % on an H200, with the last round apart.
const bool LAST_APART = UNROLL > 1 && BLOCK > 1 && BATCHES > 0;
// What a chunk is multiplied with may be on its way with it; a row in shared memory is not.
#ifdef STAGED
const bool X_AHEAD = false;
#else
const bool X_AHEAD = BLOCK == 1;
#endif
const uint AHEAD = X_AHEAD ? UNROLL : 1;
struct Chunks {
  uvec4 w[UNROLL * VECTORS];
  vec4 low[AHEAD], high[AHEAD];
};
// Nothing between a load and its use is conditional: a compiler would move the load there.
#define LOAD(to, u, c) \
  { \
    [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) { \
      [[unroll]] for (uint p = 0; p < PER_CHUNK; ++p) { \
        to.w[(u) * VECTORS + m * PER_CHUNK + p] = W_VECTOR(w_row[m] + (c) * PER_CHUNK + p); \
      } \
    } \
    if (X_AHEAD) { \
      to.low[u] = LOAD_X(0, (c) * 8); \
      to.high[u] = LOAD_X(0, (c) * 8 + 4); \
    } \
  }
#define CHUNK(round, u) (((round) * UNROLL + (u)) * LANES + t)
#define LOAD_ROUND(to, round) \
  [[unroll]] for (uint u = 0; u < UNROLL; ++u) { \
    const uint c = min(CHUNK(round, u), CHUNKS - 1); \
    LOAD(to, u, c) \
  }
#ifdef IN_BLOCKS
#define DECODE(from, at) \
  low[m] = quarter_of_w(from.w[at], 0); \
  high[m] = quarter_of_w(from.w[at], 1); \
  scale[m] = scale_of(from.w[at].z);
// A chunk's products are summed before they are multiplied with its scale.
#define ADD_PRODUCTS(i) sums[i] = fma(scale[m], dot4(high[m], b, dot4(low[m], a, 0.0)), sums[i]);
#else
#define DECODE(from, at) \
  if (W_TYPE == 0) { \
    low[m] = uintBitsToFloat(from.w[at]); \
    high[m] = uintBitsToFloat(from.w[at + PER_CHUNK - 1]); \
  } else if (W_TYPE == 1) { \
    low[m] = half4(from.w[at].xy); \
    high[m] = half4(from.w[at].zw); \
  } else { \
    low[m] = brain4(from.w[at].xy); \
    high[m] = brain4(from.w[at].zw); \
  }
#define ADD_PRODUCTS(i) sums[i] = dot4(high[m], b, dot4(low[m], a, sums[i]));
#endif
#ifdef STAGED
#define LOAD_X(n, k) vec4(0.0)
#define X_LOW(from, u, n, c) x_low[c]
#define X_HIGH(from, u, n, c) x_high[c]
#else
#define LOAD_X(n, k) load_x(row[n], k)
#define X_LOW(from, u, n, c) (X_AHEAD ? from.low[u] : LOAD_X(n, (c) * 8))
#define X_HIGH(from, u, n, c) (X_AHEAD ? from.high[u] : LOAD_X(n, (c) * 8 + 4))
#endif
// Adds the products of chunk c to `sums`.
#define USE(from, u, c) \
  { \
    vec4 low[COLUMNS_PER_LANE], high[COLUMNS_PER_LANE]; \
    float scale[COLUMNS_PER_LANE]; \
    [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) { \
      DECODE(from, (u) * VECTORS + m * PER_CHUNK) \
    } \
    [[unroll]] for (uint n = 0; n < BLOCK; ++n) { \
      const vec4 a = X_LOW(from, u, n, c), b = X_HIGH(from, u, n, c); \
      [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m) { \
        ADD_PRODUCTS(n * COLUMNS_PER_LANE + m) \
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
  // The row's own come first: they would wait for weights otherwise.
  Chunks now, next, rest;
  const uint rest_c = min(FULL * LANES + t, CHUNKS - 1);
#ifdef STAGED
  fetch_stage(row0, lane);
#endif
  LOAD_ROUND(now, 0)
  if (REST && UNROLL > 1) LOAD(rest, 0, rest_c)
  if (SUMS <= LANES) {
    const uint r = row0 + t / COLUMNS_PER_LANE, column = column0 + t % COLUMNS_PER_LANE;
    if (t < SUMS && r < rows && column < piece.column_piece) fetch(0, r, piece.column_base + column);
  }
#ifdef STAGED
  if ((K + 3) / 4 < CHUNKS * 2 && lane == 0) put_x(CHUNKS * 2 - 1, vec4(0.0));
  stage(row0, lane);
  barrier();
#endif
  const uint looped = LAST_APART ? ROUNDS - 1 : ROUNDS;  // what they load beyond is not used
  [[dont_unroll]] for (uint round = 0; round < looped; ++round) {
    if (ROUNDS > 1) {
      LOAD_ROUND(next, round + 1)
    }
    if (UNROLL > 1 || !REST || CHUNK(round, 0) < CHUNKS) {
      [[unroll]] for (uint u = 0; u < UNROLL; ++u) USE(now, u, CHUNK(round, u))
    }
    [[unroll]] for (uint i = 0; i < UNROLL * VECTORS; ++i) now.w[i] = next.w[i];
    if (X_AHEAD) {
      [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
        now.low[u] = next.low[u];
        now.high[u] = next.high[u];
      }
    }
  }
  if (LAST_APART) {
    [[unroll]] for (uint u = 0; u < UNROLL; ++u) USE(now, u, CHUNK(ROUNDS - 1, u))
  }
  if (REST && UNROLL > 1) {
    float before[SUMS];
    [[unroll]] for (uint i = 0; i < SUMS; ++i) before[i] = sums[i];
    USE(rest, 0, rest_c)
    [[unroll]] for (uint i = 0; i < SUMS; ++i) {
      sums[i] = FULL * LANES + t < CHUNKS ? sums[i] : before[i];
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
      JOIN_IN_PAIRS(parts, LANES / REACH, PLUS)
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
