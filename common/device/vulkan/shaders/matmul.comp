R"glsl(
// y[r, m] = sum over k of x[r, k] w[m, k], then the tape of the step (finish()).
// LANES lanes share an output. K is cut into chunks of 8; lane t sums chunks t, t + LANES, ... in
// order by fma into one accumulator, and the lanes are added in pairs: neighbours, then pairs of
// pairs. That order depends on LANES alone: BLOCK (rows a workgroup takes), COLUMNS_PER_LANE and
// UNROLL (turns in flight) do not change it.
vec4 half4(uvec2 bits) { return vec4(unpackHalf2x16(bits.x), unpackHalf2x16(bits.y)); }
vec4 brain4(uvec2 bits) {
  return uintBitsToFloat(uvec4(bits.x << 16, bits.x & 0xffff0000u, bits.y << 16, bits.y & 0xffff0000u));
}
float dot4(vec4 a, vec4 b, float sum) {
  return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum))));
}
const uint VECTORS = COLUMNS_PER_LANE * PER_CHUNK;  // vectors of a turn
// A lane's chunks are taken in turns, of as many as lie side by side, and UNROLL turns at a time, in
// rounds. One by one the last round is of some lanes only; otherwise UNROLL divides TURNS, and what
// is left follows.
const uint ALL = (CHUNKS + LANES - 1) / LANES;  // chunks of a lane, at most
const uint TURNS = CHUNKS / LANES / TAKES;      // turns that every lane has
const uint RESTS = ALL - TURNS * TAKES;         // chunks behind them, the last of some lanes only
const uint REST_ROOM = RESTS == 0 ? 1 : RESTS;
const uint LAST_TURN = TURNS == 0 ? 0 : TURNS - 1;
const bool REST_APART = TAKES > 1 || UNROLL > 1;
const uint BATCHES = TURNS / UNROLL;
const uint ROUNDS = REST_APART ? BATCHES : ALL;
// One copy of the code for all rounds: instructions are fetched anew in each dispatch. Two and four
// rows are faster, by 5 to 9 % on an H200, with the last round apart.
const bool LAST_APART = UNROLL > 1 && BLOCK > 1 && BATCHES > 0;
// The row's part may be loaded beside a chunk; a row in shared memory is not.
#if defined(STAGED) || defined(IN_BLOCKS)
const bool X_AHEAD = false;
#else
const bool X_AHEAD = BLOCK == 1;
#endif
const uint AHEAD = X_AHEAD ? UNROLL : 1;
struct Turns {
  uvec4 w[UNROLL * VECTORS];
  uvec4 scales[UNROLL * VECTORS], beside[UNROLL * VECTORS];
  vec4 low[AHEAD], high[AHEAD];
};
#define TURN(round, u) ((round) * UNROLL + (u))
#define CHUNK(turn, g) (((turn) * TAKES + (g)) * LANES + t)
#ifdef STAGED
#define LOAD_X(n, k) vec4(0.0)
#define X_LOW(from, u, n, c) x_low[c]
#define X_HIGH(from, u, n, c) x_high[c]
#else
#define LOAD_X(n, k) load_x(row[n], k)
#define X_LOW(from, u, n, c) (X_AHEAD ? from.low[u] : LOAD_X(n, (c) * 8))
#define X_HIGH(from, u, n, c) (X_AHEAD ? from.high[u] : LOAD_X(n, (c) * 8 + 4))
#endif
// Every other column of a lane is of the twin's matrix.
#define MATRIX(m) ((m) & 1u)
#define FOR_COLUMNS(m) [[unroll]] for (uint m = 0; m < COLUMNS_PER_LANE; ++m)
// Nothing between a load and its use is conditional: a compiler would move the load there.
#ifdef IN_BLOCKS
#define LOAD(to, u, turn) \
  { \
    const uint ahead = min(turn, LAST_TURN); \
    FOR_COLUMNS(m) { \
      if (TAKES == 1) { \
        to.w[(u) * VECTORS + m] = uvec4(chunk_of_w(MATRIX(m), w_column[m], turn, t), 0u); \
      } else { \
        to.w[(u) * VECTORS + m] = \
            OF_MATRIX(MATRIX(m), w, w_column[m] * ROW_VECTORS + ahead * LANES + t); \
        const uint at = (w_column[m] * ROW_SCALES + (ahead * LANES + t) / 4 * TAKES) / TAKES; \
        to.scales[(u) * VECTORS + m] = scales_of_vector(MATRIX(m), at); \
        if (W_TYPE == 6) to.beside[(u) * VECTORS + m] = scales_of_vector(MATRIX(m), at ^ 1u); \
      } \
    } \
  }
#define DECODE_CHUNK(one) \
  { \
    const uvec3 chunk = one; \
    low[m] = quarter_of_w(chunk, 0); \
    high[m] = quarter_of_w(chunk, 1); \
    scale[m] = scale_of(chunk); \
    less[m] = less_of(chunk); \
  }
#define DECODE(from, u, g) \
  if (TAKES == 1) { \
    DECODE_CHUNK(from.w[(u) * VECTORS + m].xyz) \
  } else { \
    const uint at = (u) * VECTORS + m; \
    DECODE_CHUNK(chunk_in(from.w[at], from.scales[at], from.beside[at], g, t)) \
  }
#define USE_REST(i, c) ADD_CHUNK(now, 0, c, DECODE_CHUNK(rest[i * COLUMNS_PER_LANE + m]))
// A chunk's products are summed before they are multiplied with its scale, and x where numbers are
// less the same. Where x picks one of them both fma are exact but for the last rounding.
#define PREPARED \
  const vec4 pairs = W_TYPE == 6 ? a + b : vec4(0.0); \
  const float all = (pairs.x + pairs.y) + (pairs.z + pairs.w);
#define ADDED(i) \
  fma(scale[m], dot4(high[m], b, dot4(low[m], a, 0.0)), \
      W_TYPE == 6 ? fma(-less[m], all, sums[i]) : sums[i])
#else
#define LOAD(to, u, turn) \
  { \
    const uint c = min(CHUNK(turn, 0), CHUNKS - 1); \
    FOR_COLUMNS(m) { \
      [[unroll]] for (uint p = 0; p < PER_CHUNK; ++p) { \
        to.w[(u) * VECTORS + m * PER_CHUNK + p] = \
            OF_MATRIX(MATRIX(m), w, w_column[m] * ROW_VECTORS + c * PER_CHUNK + p); \
      } \
    } \
    if (X_AHEAD) { \
      to.low[u] = LOAD_X(0, c * 8); \
      to.high[u] = LOAD_X(0, c * 8 + 4); \
    } \
  }
#define DECODE(from, u, g) \
  { \
    const uint at = (u) * VECTORS + m * PER_CHUNK; \
    if (W_TYPE == 0) { \
      low[m] = uintBitsToFloat(from.w[at]); \
      high[m] = uintBitsToFloat(from.w[at + PER_CHUNK - 1]); \
    } else if (W_TYPE == 1) { \
      low[m] = half4(from.w[at].xy); \
      high[m] = half4(from.w[at].zw); \
    } else { \
      low[m] = brain4(from.w[at].xy); \
      high[m] = brain4(from.w[at].zw); \
    } \
  }
#define USE_REST(i, c) USE(rest, 0, 0, c)
#define PREPARED
#define ADDED(i) dot4(high[m], b, dot4(low[m], a, sums[i]))
#endif
#define LOAD_ROUND(to, round) \
  [[unroll]] for (uint u = 0; u < UNROLL; ++u) LOAD(to, u, TURN(round, u))
// Adds the products of chunk c, whose numbers DECODED makes, to `sums`.
#define ADD_CHUNK(from, u, c, DECODED) \
  { \
    vec4 low[COLUMNS_PER_LANE], high[COLUMNS_PER_LANE]; \
    float scale[COLUMNS_PER_LANE], less[COLUMNS_PER_LANE]; \
    FOR_COLUMNS(m) DECODED \
    [[unroll]] for (uint n = 0; n < BLOCK; ++n) { \
      const vec4 a = X_LOW(from, u, n, c), b = X_HIGH(from, u, n, c); \
      PREPARED \
      FOR_COLUMNS(m) sums[n * COLUMNS_PER_LANE + m] = ADDED(n * COLUMNS_PER_LANE + m); \
    } \
  }
#define USE(from, u, g, c) ADD_CHUNK(from, u, c, DECODE(from, u, g))
#define USE_ROUND(from, round) \
  [[unroll]] for (uint u = 0; u < UNROLL; ++u) { \
    [[unroll]] for (uint g = 0; g < TAKES; ++g) USE(from, u, g, CHUNK(TURN(round, u), g)) \
  }

const uint ENDS = SUMS / EACH, ENDS_OF_ROW = COLUMNS_PER_LANE / EACH;

void main() {
  const uint lane = lane_index();
  const uint t = lane % LANES;
  const uint rows = EXACT_ROWS != 0 ? EXACT_ROWS : row_count();
  // Workgroups of the same columns run side by side, so that their weights are fetched once.
  const uint row0 = gl_WorkGroupID.x * BLOCK;
  const uint column0 = (gl_WorkGroupID.y * GROUPS + lane / LANES) * COLUMNS_PER_LANE;
  if (!has_row(row0)) return;

  uint row[BLOCK], w_column[COLUMNS_PER_LANE];
  float sums[SUMS];
  [[unroll]] for (uint n = 0; n < BLOCK; ++n) row[n] = min(row0 + n, rows - 1);
  FOR_COLUMNS(m) w_column[m] = column_of((column0 + m) / EACH, (column0 + m) % EACH);
  [[unroll]] for (uint i = 0; i < SUMS; ++i) sums[i] = 0.0;

  // The first chunks are on their way while the row is staged, the next ones while these are used.
  // The row's own come first: they would wait for weights otherwise.
  Turns now, next;
#ifdef STAGED
  fetch_stage(row0, lane);
#endif
  LOAD_ROUND(now, 0)
#ifdef IN_BLOCKS
  uvec3 rest[REST_ROOM * COLUMNS_PER_LANE];
  [[unroll]] for (uint i = 0; i < RESTS; ++i) {
    FOR_COLUMNS(m) {
      rest[i * COLUMNS_PER_LANE + m] = chunk_of_w(MATRIX(m), w_column[m], TURNS * TAKES + i, t);
    }
  }
#else
  Turns rest;
  if (RESTS > 0 && REST_APART) LOAD(rest, 0, TURNS)
#endif
  const uint first_end = column0 / EACH;
  if (ENDS <= LANES) {
    const uint r = row0 + t / ENDS_OF_ROW, i = first_end + t % ENDS_OF_ROW;
    if (t < ENDS && r < rows && i < RESULTS) fetch_result(0, r, i);
  }
#ifdef STAGED
  if (lane < CHUNKS * 8 - STAGED) put_x(STAGED + lane, 0.0);
  stage(row0, lane);
  barrier();
#endif
  const uint looped = LAST_APART ? ROUNDS - 1 : ROUNDS;  // what they load beyond is not used
  [[dont_unroll]] for (uint round = 0; round < looped; ++round) {
    if (ROUNDS > 1) {
      LOAD_ROUND(next, round + 1)
    }
    if (REST_APART || RESTS == 0 || CHUNK(round, 0) < CHUNKS) {
      USE_ROUND(now, round)
    }
    [[unroll]] for (uint i = 0; i < UNROLL * VECTORS; ++i) {
      now.w[i] = next.w[i];
      now.scales[i] = next.scales[i];
      now.beside[i] = next.beside[i];
    }
    if (X_AHEAD) {
      [[unroll]] for (uint u = 0; u < UNROLL; ++u) {
        now.low[u] = next.low[u];
        now.high[u] = next.high[u];
      }
    }
  }
  if (LAST_APART) {
    USE_ROUND(now, ROUNDS - 1)
  }
  if (REST_APART) {
    [[unroll]] for (uint i = 0; i < RESTS; ++i) {
      const uint c = min(CHUNK(TURNS, i), CHUNKS - 1);
      float before[SUMS];
      [[unroll]] for (uint j = 0; j < SUMS; ++j) before[j] = sums[j];
      USE_REST(i, c)
      [[unroll]] for (uint j = 0; j < SUMS; ++j) {
        sums[j] = CHUNK(TURNS, i) < CHUNKS ? sums[j] : before[j];
      }
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
  for (uint first = 0; first < ENDS; first += LANES) {
    float own[EACH];
    [[unroll]] for (uint e = 0; e < EACH; ++e) own[e] = 0.0;
    [[unroll]] for (uint i = 0; i < ENDS; ++i) {
      [[unroll]] for (uint e = 0; e < EACH; ++e) {
        if (i == first + t) own[e] = sums[i * EACH + e];
      }
    }
    const uint r = row0 + (first + t) / ENDS_OF_ROW;
    const uint i = first_end + (first + t) % ENDS_OF_ROW;
    if (first + t < ENDS && r < rows && i < RESULTS) {
      if (ENDS > LANES) fetch_result(0, r, i);
      finish_result(0, r, i, own[0], own[EACH - 1]);
    }
  }
}
)glsl"
