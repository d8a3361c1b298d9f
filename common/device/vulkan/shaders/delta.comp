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
const uint CHUNKS = (KEY_DIM + CHUNK - 1) / CHUNK;
const uint PITCH = CHUNK / 4 + 1;  // fours from a vector to the next, in other banks
const uint TEAMS = WORKGROUP / STRIP, SUMS = VECTORS / TEAMS;  // sums with S of a lane
const uint DOTS = VECTORS * PAGE_TOKENS / WORKGROUP;  // products of two rows of a lane
const uint AT_ONCE = 8;  // numbers of a lane that are on their way before the first is stored
const uint PARTS = 8;  // lanes that share a vector's squares
shared vec4 staged[VECTORS * PITCH];  // CHUNK channels of all vectors
shared float anchor[CHUNKS * CHUNK * STRIP];  // S before the page, behind small()
shared float by_key[PAGE_TOKENS * PAGE_TOKENS], by_query[PAGE_TOKENS * PAGE_TOKENS];
// Sums of S with keys and queries. At first it has the squares' parts; in the end, where the keys'
// were, deltas by their decay.
shared float sums[VECTORS * STRIP];
shared float deltas[PAGE_TOKENS * STRIP];  // of new rows first their values
shared float g_step[PAGE_TOKENS], g[PAGE_TOKENS], decay[PAGE_TOKENS], beta[PAGE_TOKENS], factor[VECTORS];

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
// Lane `part` of PARTS has the partial sums part, part + PARTS, ... of 64.
float squares_of(uint vector, uint part) {
  float sum[64 / PARTS];
  [[unroll]] for (uint m = 0; m < 64 / PARTS; ++m) {
    const uint d = part + PARTS * m;
    sum[m] = (square(vector, d) + square(vector, d + 128)) + (square(vector, d + 64) + square(vector, d + 192));
  }
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}
// Norms and decays of the new rows; their values, and deltas of the rows before.
void begin_page() {
  const float each = -exp_x(WIDE(a_log, head, W_TYPE)), bias = WIDE(dt_bias, head, BIAS_TYPE);
  for (uint i = lane; i < 2 * rows * PARTS; i += WORKGROUP) {
    const uint nth = i / PARTS, vector = nth / rows * PAGE_TOKENS + open + nth % rows;
    sums[vector * PARTS + i % PARTS] = squares_of(vector, i % PARTS);
  }
  for (uint i = lane; i < open + rows; i += WORKGROUP) {
    if (i < open) {
      g[i] = states[decays_at() + i];
      continue;
    }
    const uint at = step_row(i) * KEY_HEADS * HEAD_GROUP + head;
    g_step[i] = clean(each * softplus_x(a[at] + bias));
    beta[i] = small(sigmoid_x(b[at]));
  }
  for (uint n = lane; n < (open + rows) * STRIP; n += WORKGROUP) {
    const uint i = n / STRIP, c = n % STRIP;
    if (i < open) {
      deltas[n] = states[deltas_at() + i * ROOM + c];
    } else {
      const uint at = step_row(i) * STATE_WIDTH + 2 * KEY_HEADS * KEY_DIM + head * VALUE_DIM;
      deltas[n] = column + c < VALUE_DIM ? small(x[at + column + c]) : 0.0;
    }
  }
  barrier();
  for (uint i = lane; i < 2 * rows; i += WORKGROUP) {
    const uint vector = i / rows * PAGE_TOKENS + open + i % rows, at = vector * PARTS;
    factor[vector] = rsqrt_x(((sums[at] + sums[at + 4]) + (sums[at + 2] + sums[at + 6])) +
                             ((sums[at + 1] + sums[at + 5]) + (sums[at + 3] + sums[at + 7])) + 1e-6);
  }
  for (uint i = open + lane; i < open + rows; i += WORKGROUP) {
    float sum = open == 0 ? 0.0 : g[open - 1];
    for (uint l = open; l <= i; ++l) sum = sum + g_step[l];
    g[i] = sum;
    decay[i] = small(exp_x(sum));
    if (column == 0) states[decays_at() + i] = sum;
  }
  barrier();
}
float decay_since(uint i, uint l) { return small(exp_x(l < i ? g[i] - g[l] : 0.0)); }

// Brings CHUNK channels of all keys up to the new ones, and of new queries, into shared memory.
void stage(uint from) {
  for (uint i = lane; i < 2 * rows * CHUNK; i += WORKGROUP) {
    const uint nth = i / CHUNK, at = i % CHUNK, d = from + at;
    const uint vector = nth / rows * PAGE_TOKENS + open + nth % rows;
    const float value = d < KEY_DIM ? (taken(vector, d) * factor[vector]) * (vector < PAGE_TOKENS ? 1.0 : SCALE) : 0.0;
    staged[vector * PITCH + at / 4][at % 4] = small(value);
  }
  for (uint first = lane; open > 0 && first < CHUNK * PAGE_TOKENS; first += AT_ONCE * WORKGROUP) {
    float old[AT_ONCE];
    [[unroll]] for (uint n = 0; n < AT_ONCE; ++n) {
      const uint i = first + n * WORKGROUP, vector = i % PAGE_TOKENS, d = from + i / PAGE_TOKENS;
      old[n] = vector < open && d < KEY_DIM ? states[keys_at() + d * PAGE_TOKENS + vector] : 0.0;
    }
    [[unroll]] for (uint n = 0; n < AT_ONCE; ++n) {
      const uint i = first + n * WORKGROUP, vector = i % PAGE_TOKENS, at = i / PAGE_TOKENS;
      if (vector < open && at < CHUNK) staged[vector * PITCH + at / 4][at % 4] = old[n];
    }
  }
  barrier();
}
void keep_keys(uint from) {
  for (uint i = lane; i < CHUNK * PAGE_TOKENS; i += WORKGROUP) {
    const uint vector = i % PAGE_TOKENS, at = i / PAGE_TOKENS;
    if (is_new(vector) && from + at < KEY_DIM) {
      states[keys_at() + (from + at) * PAGE_TOKENS + vector] = staged[vector * PITCH + at / 4][at % 4];
    }
  }
}

// Products of rows with each other and with S.
void find_sums() {
  const uint c = lane % STRIP, team = lane / STRIP, l = lane % PAGE_TOKENS;
  float with_s[SUMS], dots[DOTS];
  [[unroll]] for (uint j = 0; j < SUMS; ++j) with_s[j] = 0.0;
  [[unroll]] for (uint j = 0; j < DOTS; ++j) dots[j] = 0.0;
  const bool keeps = column == 0 && (TILED ? head < KEY_HEADS : head % HEAD_GROUP == 0);  // the first of its group
  for (uint chunk = 0; chunk < CHUNKS * CHUNK; chunk += CHUNK) {
    if (chunk > 0) barrier();
    stage(chunk);
    if (keeps) keep_keys(chunk);
    [[unroll]] for (uint j = 0; j < SUMS; ++j) {
      const uint vector = team + j * TEAMS;
      if (!is_new(vector % PAGE_TOKENS)) continue;
      for (uint d = 0; d < CHUNK / 4; ++d) {
        const vec4 four = staged[vector * PITCH + d];
        [[unroll]] for (uint k = 0; k < 4; ++k) {
          with_s[j] = with_s[j] + four[k] * anchor[(chunk + 4 * d + k) * STRIP + c];
        }
      }
    }
    [[unroll]] for (uint j = 0; j < DOTS; ++j) {
      const uint vector = (lane + j * WORKGROUP) / PAGE_TOKENS;
      if (!is_new(vector % PAGE_TOKENS) || l > vector % PAGE_TOKENS) continue;
      for (uint d = 0; d < CHUNK / 4; ++d) {
        const vec4 four = staged[vector * PITCH + d], key = staged[l * PITCH + d];
        [[unroll]] for (uint k = 0; k < 4; ++k) dots[j] = dots[j] + four[k] * key[k];
      }
    }
  }
  [[unroll]] for (uint j = 0; j < SUMS; ++j) sums[(team + j * TEAMS) * STRIP + c] = small(with_s[j]);
  [[unroll]] for (uint j = 0; j < DOTS; ++j) {
    const uint vector = (lane + j * WORKGROUP) / PAGE_TOKENS, i = vector % PAGE_TOKENS;
    if (!is_new(i) || l > i) continue;
    const float weight = small(decay_since(i, l) * small(dots[j]));
    if (vector < PAGE_TOKENS) by_key[i * PAGE_TOKENS + l] = weight;
    else by_query[i * PAGE_TOKENS + l] = weight;
  }
  barrier();
}

// A column a lane: behind each row's delta the sums of all rows behind it have one term more.
void find_deltas() {
  if (lane < STRIP) {
    float seen[PAGE_TOKENS];
    [[unroll]] for (uint i = 0; i < PAGE_TOKENS; ++i) seen[i] = is_new(i) ? sums[i * STRIP + lane] * decay[i] : 0.0;
    [[unroll]] for (uint l = 0; l < PAGE_TOKENS; ++l) {
      if (l < open + rows) {
        float delta = deltas[l * STRIP + lane];
        if (l >= open) {
          delta = small(small(delta - seen[l]) * beta[l]);
          deltas[l * STRIP + lane] = delta;
          states[deltas_at() + l * ROOM + lane] = delta;
        }
        [[unroll]] for (uint i = l + 1; i < PAGE_TOKENS; ++i) {
          seen[i] = seen[i] + by_key[i * PAGE_TOKENS + l] * delta;
        }
      }
    }
  }
  barrier();
}

void put_results() {
  for (uint n = lane; n < rows * STRIP; n += WORKGROUP) {
    const uint i = open + n / STRIP, c = n % STRIP;
    float sum = sums[(PAGE_TOKENS + i) * STRIP + c] * decay[i];
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
  for (uint n = lane; n < PAGE_TOKENS * STRIP; n += WORKGROUP) {
    sums[n] = small(deltas[n] * decay_since(last, n / STRIP));
  }
  barrier();
  const uint next = anchors_at(1 - page_half);
  for (uint chunk = 0; chunk < CHUNKS * CHUNK; chunk += CHUNK) {
    if (CHUNKS > 1) {
      barrier();
      stage(chunk);
    }
    for (uint four = lane / STRIP; four < CHUNK / 4; four += TEAMS) {
      vec4 sum;
      const uint d = chunk + 4 * four;
      [[unroll]] for (uint k = 0; k < 4; ++k) sum[k] = anchor[(d + k) * STRIP + c] * decay[last];
      [[unroll]] for (uint l = 0; l < PAGE_TOKENS; ++l) sum = sum + staged[l * PITCH + four] * sums[l * STRIP + c];
      [[unroll]] for (uint k = 0; k < 4; ++k) {
        if (d + k < KEY_DIM) states[next + (d + k) * ROOM + c] = clean(sum[k]);
        anchor[(d + k) * STRIP + c] = small(sum[k]);
      }
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
  const uint begins = anchors_at(position / PAGE_TOKENS % 2);
  for (uint from = lane; from < CHUNKS * CHUNK * STRIP; from += AT_ONCE * WORKGROUP) {
    float s[AT_ONCE];
    [[unroll]] for (uint n = 0; n < AT_ONCE; ++n) {
      const uint i = from + n * WORKGROUP, d = i / STRIP;
      s[n] = position > 0 && d < KEY_DIM ? states[begins + d * ROOM + i % STRIP] : 0.0;
    }
    [[unroll]] for (uint n = 0; n < AT_ONCE; ++n) {
      const uint i = from + n * WORKGROUP;
      if (i < CHUNKS * CHUNK * STRIP) anchor[i] = small(s[n]);
    }
  }
  for (uint i = lane; position == 0 && i < KEY_DIM * STRIP; i += WORKGROUP) {
    states[begins + i / STRIP * ROOM + i % STRIP] = 0.0;  // a text begins with zeros
  }
  for (row = first; row < end; row += rows, position += rows) {
    page_half = position / PAGE_TOKENS % 2;
    open = position % PAGE_TOKENS;
    rows = min(end - row, PAGE_TOKENS - open);
    begin_page();
    find_sums();
    find_deltas();
    put_results();
    if (open + rows == PAGE_TOKENS) put_anchor();
    barrier();
  }
}
)glsl"
