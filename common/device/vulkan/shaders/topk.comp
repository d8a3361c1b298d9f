R"glsl(
// The COUNT largest of a row, from its blocks' maxima. One workgroup a row. Who is ranked counts
// those before it: no order in which lanes come changes the result.
layout(constant_id = 5) const uint COUNT = 1;
layout(set = 0, binding = 2) readonly buffer Maxima { uint maxima[]; };
layout(set = 0, binding = 3) writeonly buffer Result { uint result[]; };
const uint CANDIDATES = 1024;
shared uint largest[BLOCKS];
shared uint listed[BLOCKS];  // blocks that may hold one of the k
shared uint key[CANDIDATES];
shared uint column[CANDIDATES];
shared uint bound, lists, found;

void put(uint r, uint rank, uint c) {
  result[r * 2 * COUNT + rank] = x[r * COLUMNS + c];
  result[r * 2 * COUNT + COUNT + rank] = floatBitsToUint(float(c));
}

bool before(uint key_a, uint a, uint key_b, uint b) {
  return key_a != key_b ? key_a > key_b : a < b;
}

// One after the other, for rows with more candidates than there is room for: of equal elements.
void put_in_turns(uint r, uint lane) {
  uint last_key = 0xffffffffu, last = 0;  // of the one before
  for (uint rank = 0; rank < COUNT; ++rank) {
    uint best_key = 0, best = 0xffffffffu;
    for (uint c = lane; c < COLUMNS; c += WORKGROUP) {
      const uint k = order(x[r * COLUMNS + c]);
      const bool left = rank == 0 || before(last_key, last, k, c);
      if (left && before(k, c, best_key, best)) {
        best_key = k;
        best = c;
      }
    }
    barrier();
    key[lane] = best_key;
    column[lane] = best;
    barrier();
    for (uint i = 0; i < WORKGROUP; ++i) {
      if (before(key[i], column[i], best_key, best)) {
        best_key = key[i];
        best = column[i];
      }
    }
    last_key = best_key;
    last = best;
    if (lane == 0) put(r, rank, best);
  }
}

void main() {
  const uint r = gl_WorkGroupID.x, lane = gl_LocalInvocationIndex;
  if (r >= row_count()) return;
  if (lane == 0) lists = found = 0;
  for (uint b = lane; b < BLOCKS; b += WORKGROUP) largest[b] = maxima[r * BLOCKS + b];
  barrier();
  for (uint b = lane; b < BLOCKS; b += WORKGROUP) {
    uint rank = 0;
    for (uint i = 0; i < BLOCKS; ++i) rank += before(largest[i], i, largest[b], b) ? 1 : 0;
    if (rank == COUNT - 1) bound = largest[b];
  }
  barrier();
  for (uint b = lane; b < BLOCKS; b += WORKGROUP) {
    if (largest[b] >= bound) listed[atomicAdd(lists, 1)] = b;
  }
  barrier();
  const uint each = (COLUMNS + BLOCKS - 1) / BLOCKS;
  for (uint i = lane; i < lists * each; i += WORKGROUP) {
    const uint c = listed[i % lists] + i / lists * BLOCKS;
    const uint k = c < COLUMNS ? order(x[r * COLUMNS + c]) : 0;
    if (k < bound) continue;
    const uint at = atomicAdd(found, 1);
    if (at < CANDIDATES) {
      key[at] = k;
      column[at] = c;
    }
  }
  barrier();
  if (found > CANDIDATES) {
    put_in_turns(r, lane);
    return;
  }
  for (uint i = lane; i < found; i += WORKGROUP) {
    uint rank = 0;
    for (uint j = 0; j < found; ++j) rank += before(key[j], column[j], key[i], column[i]) ? 1 : 0;
    if (rank < COUNT) put(r, rank, column[i]);
  }
}
)glsl"
