R"glsl(
// Attention's shapes and the paged caches. Page p of a cache is in piece p / PIECE_PAGES, each
// piece a binding: CACHE_PIECES of K from K_BINDING on, as many of V from V_BINDING on.
layout(constant_id = 20) const uint HEADS = 1;
layout(constant_id = 21) const uint D = 1;
layout(constant_id = 22) const uint TABLE_PAGES = 1;  // pages of one sequence's table
layout(constant_id = 23) const uint PIECE_PAGES = 1;
layout(constant_id = 24) const uint KV_TYPE = 0;  // 0: F32, 1: F16
layout(constant_id = 25) const uint SPLITS = 1;
layout(constant_id = 26) const float SCALE = 1.0;
const uint C = HEADS * D;
const uint PAGE_TOKENS = 16;
const uint KEYS = 128;  // of a split
uint page_of(uint sequence, uint position) {
  return symbols[ARRAYS + TABLES * CAPACITY + sequence * TABLE_PAGES + position / PAGE_TOKENS];
}
)glsl"
