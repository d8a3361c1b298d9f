R"glsl(
// The paged caches. Page p of a cache is in piece p / PIECE_PAGES, each piece a binding.
layout(constant_id = 5) const uint HEADS = 1;
layout(constant_id = 6) const uint D = 1;
layout(constant_id = 7) const uint TABLE_PAGES = 1;  // pages of one sequence's table
layout(constant_id = 8) const uint PIECE_PAGES = 1;
layout(constant_id = 9) const uint KV_TYPE = 0;  // 0: F32, 1: F16
const uint C = HEADS * D;
const uint PAGE_TOKENS = 16;
uint page_of(uint sequence, uint position) {
  return symbols[ARRAYS + TABLES * CAPACITY + sequence * TABLE_PAGES + position / PAGE_TOKENS];
}
)glsl"
