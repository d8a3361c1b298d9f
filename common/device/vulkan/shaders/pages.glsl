R"glsl(
// Attention's shapes and the paged caches. Page p of a cache is in piece p / PIECE_PAGES, each
// piece a binding: CACHE_PIECES of K from K_BINDING on, as many of V from V_BINDING on.
const uint C = HEADS * D, KV_WIDTH = KV_HEADS * D;
uint kv_head(uint head) { return head / (HEADS / KV_HEADS); }
const uint SPLIT = SPLIT_STRIDE(D);
// The keys that a row sees: from x on, before y.
uvec2 seen_keys(uint row) {
  const uint first = symbol(SEEN_FIRST, row), end = symbol(SEEN_END, row);
  return uvec2(WINDOW > 0 ? max(first, end - min(end, WINDOW)) : first, end);
}
// The splits of them, or groups of splits.
uvec2 seen_splits(uint row) {
  const uvec2 seen = seen_keys(row);
  const uint keys = SPLIT_KEYS * GROUP_SPLITS;
  return uvec2(seen.x / keys, (seen.y + keys - 1) / keys);
}
uint table_at(uint n) { return HEADER_WORDS + SYMBOL_ARRAYS * CAPACITY + n * TABLE_PAGES; }
uint table_of_sequence(uint sequence) { return table_at(NARROW_ROWS + sequence); }
// Where the page table of a row starts. A few rows have one each, so that it is read at once; more
// have their sequence's.
uint table_of(uint row) {
  if (ROW_TABLES) return table_at(row);
  return table_of_sequence(symbol(SEQUENCES, row));
}
)glsl"
