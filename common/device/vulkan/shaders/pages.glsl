R"glsl(
// Attention's shapes and the paged caches. Page p of a cache is in piece p / PIECE_PAGES, each
// piece a binding: CACHE_PIECES of K from K_BINDING on, as many of V from V_BINDING on.
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
uint table_of(uint row) {
  const uint first = ARRAYS + TABLES * CAPACITY;
  if (ROW_TABLES) return first + row * TABLE_PAGES;
  return first + (NARROW_ROWS + symbol(SEQUENCES, row)) * TABLE_PAGES;
}
)glsl"
