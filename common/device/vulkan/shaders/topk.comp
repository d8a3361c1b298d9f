R"glsl(
// The COUNT largest of a row, from its blocks' maxima. One workgroup a row. Who is ranked counts
// those before it: no order in which lanes come changes the result.
layout(set = 0, binding = 2) readonly buffer Maxima { uint maxima[]; };
layout(set = 0, binding = 3) writeonly buffer Result { uint result[]; };
const uint CANDIDATES = 1024;
shared uint largest[TOP_BLOCKS];
shared uint listed[TOP_BLOCKS];  // blocks that may hold one of the k
shared uint key[CANDIDATES];
shared uint column[CANDIDATES];
shared uint bound, lists, found;

void put(uint r, uint rank, uint c) {
  result[r * 2 * COUNT + rank] = x[r * COLUMNS + c];
  result[r * 2 * COUNT + COUNT + rank] = floatBitsToUint(float(c));
}

bool before(uint key_a, uint a, uint key_b, uint b) {
  return key_a > key_b || (key_a == key_b && a < b);
}

// One after the other, for rows with more candidates than there is room for: of equal elements.
void put_in_turns(uint r, uint lane) {
  uint last_key = 0xffffffffu, last = 0;  // the one before
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
  for (uint b = lane; b < TOP_BLOCKS; b += WORKGROUP) largest[b] = maxima[r * TOP_BLOCKS + b];
  barrier();
  for (uint b = lane; b < TOP_BLOCKS; b += WORKGROUP) {
    uint larger = 0, as_large = 0;
    for (uint first = 0; first < TOP_BLOCKS; first += AT_ONCE) {
      [[unroll]] for (uint i = first; i < first + AT_ONCE; ++i) {
        larger += largest[i] > largest[b] ? 1 : 0;
        as_large += largest[i] >= largest[b] ? 1 : 0;
      }
    }
    if (larger < COUNT && COUNT <= as_large) bound = largest[b];  // the same, whoever writes it
  }
  barrier();
  for (uint b = lane; b < TOP_BLOCKS; b += WORKGROUP) {
    if (largest[b] >= bound) listed[atomicAdd(lists, 1)] = b;
  }
  barrier();
  const uint all_lists = lists;
  for (uint l = lane / TOP_TEAM; l < all_lists; l += WORKGROUP / TOP_TEAM) {
    const uint block = listed[l];
    for (uint first = lane % TOP_TEAM; first < EACH; first += TOP_TEAM * AT_ONCE) {
      uint bits[AT_ONCE];
      [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) bits[i] = bits_of(r, block, first + i * TOP_TEAM);
      [[unroll]] for (uint i = 0; i < AT_ONCE; ++i) {
        const uint k = order_in(block, first + i * TOP_TEAM, bits[i]);
        if (k < bound) continue;
        const uint at = atomicAdd(found, 1);
        if (at < CANDIDATES) {
          key[at] = k;
          column[at] = block * EACH + first + i * TOP_TEAM;
        }
      }
    }
  }
  barrier();
  const uint candidates = found;
  if (candidates > CANDIDATES) {
    put_in_turns(r, lane);
    return;
  }
  // Nobody's, up to a whole turn of the loop below.
  for (uint i = candidates + lane; i < (candidates + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
       i += WORKGROUP) {
    key[i] = 0;
  }
  barrier();
  for (uint i = lane; i < candidates; i += WORKGROUP) {
    const uint own_key = key[i], own = column[i];
    uint rank = 0;
    for (uint first = 0; first < candidates; first += AT_ONCE) {
      [[unroll]] for (uint j = first; j < first + AT_ONCE; ++j) {
        rank += before(key[j], column[j], own_key, own) ? 1 : 0;
      }
    }
    if (rank < COUNT) put(r, rank, own);
  }
}
)glsl"
