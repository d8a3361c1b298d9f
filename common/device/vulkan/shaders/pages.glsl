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
layout(constant_id = 34) const uint KV_HEADS = 1;  // each is shared by HEADS / KV_HEADS of q
// Where q, k and v begin in their rows, and floats from one row to the next.
layout(constant_id = 35) const uint Q_FIRST = 0;
layout(constant_id = 36) const uint K_FIRST = 0;
layout(constant_id = 37) const uint V_FIRST = 0;
layout(constant_id = 38) const uint Q_STRIDE = 1;
layout(constant_id = 39) const uint K_STRIDE = 1;
layout(constant_id = 40) const uint V_STRIDE = 1;
const uint C = HEADS * D, KV_WIDTH = KV_HEADS * D;
uint kv_head(uint head) { return head / (HEADS / KV_HEADS); }
const uint PAGE_TOKENS = 16;
const uint KEYS = 128;  // of a split
// Floats that a split leaves: sums of values, its largest score, the sum of weights, and padding.
const uint SPLIT = (D + 5) / 4 * 4;
// The splits that a row sees: from x on, before y.
uvec2 seen_splits(uint row) {
  return uvec2(symbol(SEEN_FIRST, row) / KEYS, (symbol(SEEN_END, row) + KEYS - 1) / KEYS);
}
// Where the page table of a row starts. A few rows have one each, so that it is read at once; more
// have their sequence's.
layout(constant_id = 27) const bool ROW_TABLES = false;
uint table_of(uint row) {
  const uint first = ARRAYS + TABLES * CAPACITY;
  if (ROW_TABLES) return first + row * TABLE_PAGES;
  return first + (NARROW_ROWS + symbol(SEQUENCES, row)) * TABLE_PAGES;
}
)glsl"
