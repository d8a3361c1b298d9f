R"glsl(
// The delta rule, anchored at pages: orders of sums as cpu/kernels/state/delta.h says. A workgroup has STRIP columns of
// a head of values and walks the pages of a run; no sum crosses lanes. PART says which rows of the run: all, those that
// complete a page of earlier steps, or those behind it. Of a run of more than two pages these are two dispatches: the
// third page's keys take the place of the first's, which other workgroups may still read.
layout(set = 0, binding = 3) readonly buffer X { float x[]; };
layout(set = 0, binding = 4) readonly buffer A { float a[]; };
layout(set = 0, binding = 5) readonly buffer B { float b[]; };
layout(set = 0, binding = 6) readonly buffer ALog { uint a_log[]; };
layout(set = 0, binding = 7) readonly buffer Bias { uint dt_bias[]; };
layout(set = 0, binding = 8) writeonly buffer Result { float result[]; };
#define PART piece.column_base

const uint VECTORS = 2 * PAGE_TOKENS;  // a page has: keys, then queries
const uint CHUNK = 32, CHUNKS = (KEY_DIM + CHUNK - 1) / CHUNK;  // channels at a time
const uint PITCH = VECTORS / 4 + 1;  // fours from a channel to the next, in other banks
const uint TEAMS = WORKGROUP / STRIP, FOURS = VECTORS / 4 / TEAMS;  // vectors of a lane, by fours
const uint DOTS = VECTORS * PAGE_TOKENS / WORKGROUP;  // products of two rows that a lane has
const uint SQUARES = 64;  // partial sums of a vector's squares
shared vec4 staged[CHUNK * PITCH];  // a chunk of all vectors; also squares, and sums
shared float anchor[CHUNKS * CHUNK * STRIP];  // S before the page, behind small()
shared float by_key[PAGE_TOKENS * PAGE_TOKENS], by_query[PAGE_TOKENS * PAGE_TOKENS];
shared float deltas[PAGE_TOKENS * STRIP];
shared float g[PAGE_TOKENS], decay[PAGE_TOKENS], beta[PAGE_TOKENS], factor[VECTORS];
#define STAGED(i) staged[(i) / 4][(i) % 4]

// The workgroup's place, and the page's: its first `open` rows are of earlier steps, `rows` behind
// them, from `row` of the step on, are to be computed.
uint lane, head, key_head, column, state, row, open, rows, page_half;

uint keys_at() {
  return state + KEYS_AT + page_half * ((DELTAS_AT - KEYS_AT) / 2) + key_head * KEY_DIM * PAGE_TOKENS;
}
uint deltas_at() {
  return state + DELTAS_AT + page_half * ((DECAYS_AT - DELTAS_AT) / 2) + head * PAGE_TOKENS * ROOM + column;
}
uint decays_at() { return state + DECAYS_AT + page_half * ((TAKEN_AT - DECAYS_AT) / 2) + head * PAGE_TOKENS; }
uint anchors_at(uint of_half) {
  return state + of_half * (KEYS_AT / 2) + head * KEY_DIM * ROOM + column;
}
bool is_new(uint i) { return i >= open && i < open + rows; }
uint step_row(uint i) { return row + i - open - piece.row_base; }

float taken(uint vector, uint d) {
  const uint kind = vector < PAGE_TOKENS ? KEY_HEADS : 0;
  return small(x[step_row(vector % PAGE_TOKENS) * STATE_WIDTH + (kind + key_head) * KEY_DIM + d]);
}
float square(uint vector, uint d) {
  if (d >= KEY_DIM) return 0.0;
  const float z = taken(vector, d);
  return z * z;
}
void find_norms() {
  for (uint first = open; first < VECTORS; first += PAGE_TOKENS) {
    for (uint i = lane; i < rows * SQUARES; i += WORKGROUP) {
      const uint vector = first + i / SQUARES, d = i % SQUARES;
      STAGED(i) = (square(vector, d) + square(vector, d + 128)) +
                  (square(vector, d + 64) + square(vector, d + 192));
    }
    barrier();
    for (uint half_way = SQUARES / 2; half_way > 0; half_way /= 2) {
      for (uint i = lane; i < rows * half_way; i += WORKGROUP) {
        const uint at = i / half_way * SQUARES + i % half_way;
        STAGED(at) = STAGED(at) + STAGED(at + half_way);
      }
      barrier();
    }
    for (uint i = lane; i < rows; i += WORKGROUP) {
      factor[first + i] = rsqrt_x(STAGED(i * SQUARES) + 1e-6);
    }
    barrier();
  }
}
void find_decays() {
  const float each = -exp_x(WIDE(a_log, head, W_TYPE)), bias = WIDE(dt_bias, head, BIAS_TYPE);
  for (uint i = lane; i < open + rows; i += WORKGROUP) {
    if (i < open) {
      g[i] = states[decays_at() + i];
      continue;
    }
    const uint at = step_row(i) * KEY_HEADS * HEAD_GROUP + head;
    g[i] = clean(each * softplus_x(a[at] + bias));
    beta[i] = small(sigmoid_x(b[at]));
  }
  barrier();
  if (lane == 0) {
    for (uint i = open; i < open + rows; ++i) g[i] = (i == 0 ? 0.0 : g[i - 1]) + g[i];
  }
  barrier();
  for (uint i = open + lane; i < open + rows; i += WORKGROUP) {
    decay[i] = small(exp_x(g[i]));
    if (column == 0) states[decays_at() + i] = g[i];
  }
}
float decay_since(uint i, uint l) { return small(exp_x(l < i ? g[i] - g[l] : 0.0)); }

// Brings CHUNK channels of all keys up to the new ones, and of new queries, into shared memory, and new keys to the
// state.
void stage(uint from, bool queries, bool keeps) {
  const uint keys = open + rows, vectors = keys + (queries ? rows : 0);
  for (uint i = lane; i < vectors * CHUNK; i += WORKGROUP) {
    const uint nth = i / CHUNK, d = from + i % CHUNK;
    const uint vector = nth < keys ? nth : PAGE_TOKENS + open + nth - keys;
    float value = 0.0;
    if (d < KEY_DIM && is_new(vector % PAGE_TOKENS)) {
      value = small((taken(vector, d) * factor[vector]) * (vector < PAGE_TOKENS ? 1.0 : SCALE));
      if (keeps && vector < PAGE_TOKENS) states[keys_at() + d * PAGE_TOKENS + vector] = value;
    } else if (d < KEY_DIM && vector < open) {
      value = states[keys_at() + d * PAGE_TOKENS + vector];
    }
    staged[i % CHUNK * PITCH + vector / 4][vector % 4] = value;
  }
}

// Products of rows with each other and with S, by the lane's part of them: of many rows each team has vectors that lie
// side by side, of few each row's key and query.
void find_sums() {
  const uint c = lane % STRIP, team = lane / STRIP;
  const uint l = lane % PAGE_TOKENS, kind = lane / PAGE_TOKENS % 2;  // key or query, by key l
  vec4 sums[FOURS];
  float dots[DOTS];
  [[unroll]] for (uint j = 0; j < FOURS; ++j) sums[j] = vec4(0.0);
  [[unroll]] for (uint j = 0; j < DOTS; ++j) dots[j] = 0.0;
  const bool few = rows <= TEAMS;
  const uint key_row = open + team;
  float by_few_key = 0.0, by_few_query = 0.0;
  const uint from_four = team * FOURS * 4 % PAGE_TOKENS;
  const bool sums_new = from_four < open + rows && from_four + FOURS * 4 > open;
  const bool keeps = column == 0 && (TILED ? head < KEY_HEADS : head % HEAD_GROUP == 0);  // the first of its group
  for (uint chunk = 0; chunk < CHUNKS * CHUNK; chunk += CHUNK) {
    barrier();
    stage(chunk, true, keeps);
    barrier();
    if (few && team < rows) {
      for (uint from = 0; from < CHUNK; from += 8) {
        [[unroll]] for (uint d = from; d < from + 8; ++d) {
          const float s = anchor[(chunk + d) * STRIP + c];
          by_few_key = by_few_key + STAGED(d * PITCH * 4 + key_row) * s;
          by_few_query = by_few_query + STAGED(d * PITCH * 4 + PAGE_TOKENS + key_row) * s;
        }
      }
    } else if (!few && sums_new) {
      for (uint d = 0; d < CHUNK; ++d) {
        const float s = anchor[(chunk + d) * STRIP + c];
        [[unroll]] for (uint j = 0; j < FOURS; ++j) {
          sums[j] = sums[j] + staged[d * PITCH + team * FOURS + j] * s;
        }
      }
    }
    [[unroll]] for (uint j = 0; j < DOTS; ++j) {
      const uint i = open + lane / VECTORS + j * (WORKGROUP / VECTORS);
      if (i < open + rows) {
        const uint vector = kind * PAGE_TOKENS + i;
        for (uint d = 0; d < CHUNK; ++d) {
          dots[j] = dots[j] + STAGED(d * PITCH * 4 + vector) * STAGED(d * PITCH * 4 + l);
        }
      }
    }
  }
  barrier();
  [[unroll]] for (uint j = 0; j < DOTS; ++j) {
    const uint i = open + lane / VECTORS + j * (WORKGROUP / VECTORS);
    if (i < open + rows) {
      const float weight = small(decay_since(i, l) * small(dots[j]));
      if (kind == 0) by_key[i * PAGE_TOKENS + l] = weight;
      else by_query[i * PAGE_TOKENS + l] = weight;
    }
  }
  if (few && team < rows) {
    STAGED(key_row * STRIP + c) = small(by_few_key);
    STAGED((PAGE_TOKENS + key_row) * STRIP + c) = small(by_few_query);
  }
  if (few) return;
  [[unroll]] for (uint j = 0; j < FOURS; ++j) {
    [[unroll]] for (uint k = 0; k < 4; ++k) {
      STAGED(((team * FOURS + j) * 4 + k) * STRIP + c) = small(sums[j][k]);
    }
  }
}

void find_deltas() {
  for (uint i = lane; i < open * STRIP; i += WORKGROUP) {
    deltas[i] = states[deltas_at() + i / STRIP * ROOM + i % STRIP];
  }
  barrier();
  if (lane < STRIP) {
    for (uint i = open; i < open + rows; ++i) {
      float seen = STAGED(i * STRIP + lane) * decay[i];
      for (uint l = 0; l < i; ++l) {
        seen = seen + by_key[i * PAGE_TOKENS + l] * deltas[l * STRIP + lane];
      }
      const uint at = step_row(i) * STATE_WIDTH + 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM;
      const float value = column + lane < VALUE_DIM ? small(x[at + column + lane]) : 0.0;
      const float delta = small(small(value - seen) * beta[i]);
      deltas[i * STRIP + lane] = delta;
      states[deltas_at() + i * ROOM + lane] = delta;
    }
  }
  barrier();
}

void put_results() {
  for (uint n = lane; n < rows * STRIP; n += WORKGROUP) {
    const uint i = open + n / STRIP, c = n % STRIP;
    float sum = STAGED((PAGE_TOKENS + i) * STRIP + c) * decay[i];
    for (uint l = 0; l <= i; ++l) {
      sum = sum + by_query[i * PAGE_TOKENS + l] * deltas[l * STRIP + c];
    }
    if (column + c < VALUE_DIM) {
      const uint at = step_row(i) * KEY_HEADS * HEAD_GROUP + head;
      result[at * VALUE_DIM + column + c] = clean(sum);
    }
  }
}

// S behind a whole page.
void put_anchor() {
  const uint c = lane % STRIP, last = PAGE_TOKENS - 1;
  float scaled[PAGE_TOKENS];
  [[unroll]] for (uint l = 0; l < PAGE_TOKENS; ++l) {
    scaled[l] = small(deltas[l * STRIP + c] * decay_since(last, l));
  }
  const uint next = anchors_at(1 - page_half);
  for (uint chunk = 0; chunk < CHUNKS * CHUNK; chunk += CHUNK) {
    barrier();
    stage(chunk, false, false);
    barrier();
    for (uint d = lane / STRIP; d < CHUNK && chunk + d < KEY_DIM; d += TEAMS) {
      const uint at = (chunk + d) * STRIP + c;
      float sum = anchor[at] * decay[last];
      [[unroll]] for (uint l = 0; l < PAGE_TOKENS; ++l) {
        sum = sum + staged[d * PITCH + l / 4][l % 4] * scaled[l];
      }
      states[next + (chunk + d) * ROOM + c] = clean(sum);
      anchor[at] = small(sum);
    }
  }
}

void main() {
  const uint run = gl_WorkGroupID.y;
  if (run >= symbols[COUNT_OF_RUNS]) return;
  uint first = max(symbol(RUN_FIRST, run), piece.row_base);
  uint end = min(run_end(run), piece.row_base + piece.row_piece);
  if (first >= end) return;
  const uint completes = (PAGE_TOKENS - symbol(POSITIONS, first) % PAGE_TOKENS) % PAGE_TOKENS;
  if (PART == 1) end = min(end, first + completes);
  if (PART == 2) first += completes;
  if (first >= end) return;
  lane = gl_LocalInvocationIndex;
  head = gl_WorkGroupID.x / (ROOM / STRIP);
  column = gl_WorkGroupID.x % (ROOM / STRIP) * STRIP;
  key_head = TILED ? head % KEY_HEADS : head / HEAD_GROUP;
  state = state_of(first);
  uint position = symbol(POSITIONS, first);
  for (uint i = lane; i < CHUNKS * CHUNK * STRIP; i += WORKGROUP) {
    const uint at = anchors_at(position / PAGE_TOKENS % 2) + i / STRIP * ROOM + i % STRIP;
    const bool there = i / STRIP < KEY_DIM;
    if (position == 0 && there) states[at] = 0.0;  // a text begins with zeros
    anchor[i] = position > 0 && there ? small(states[at]) : 0.0;
  }
  for (row = first; row < end; row += rows, position += rows) {
    page_half = position / PAGE_TOKENS % 2;
    open = position % PAGE_TOKENS;
    rows = min(end - row, PAGE_TOKENS - open);
    find_norms();
    find_decays();
    find_sums();
    find_deltas();
    put_results();
    if (open + rows == PAGE_TOKENS) put_anchor();
    barrier();
  }
}
)glsl"
