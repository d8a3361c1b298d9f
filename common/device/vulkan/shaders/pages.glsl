R"glsl(
// Attention's shapes and the paged caches. Page p of a cache is in piece p / PIECE_PAGES, each
// piece a binding: CACHE_PIECES of K from K_BINDING on, as many of V from V_BINDING on.
const uint C = HEADS * D, KV_WIDTH = KV_HEADS * D;
uint kv_head(uint head) { return head / (HEADS / KV_HEADS); }
const uint SPLIT = SPLIT_STRIDE(D);
// The keys that a row sees: from x on, before y.
uvec2 seen_keys(uint row) {
  const uint first = symbol(SEEN_FIRST, row), end = symbol(SEEN_END, row);
  if (WINDOW > 0 && BOTH_WAYS) {
    const uint own = symbol(POSITIONS, row);
    return uvec2(max(first, own + 1 - min(own + 1, WINDOW)), min(end, own + WINDOW));
  }
  return uvec2(WINDOW > 0 ? max(first, end - min(end, WINDOW)) : first, end);
}
#ifdef BIASED
layout(set = 0, binding = BIAS_BINDING) readonly buffer Bias { float bias[]; };
// Returns the bias of the score of a key and a row at such places.
float bias_of(uint head, uint key, uint own) {
  const uint stride = (HEADS + 7) / 8 * 8;  // rows of a matrix are whole chunks
  return bias[uint(relative_bucket(int(key) - int(own))) * stride + head];
}
#else
#define bias_of(head, key, own) 0.0
#endif
// The splits of them, or groups of splits.
uvec2 seen_splits(uint row) {
  const uvec2 seen = seen_keys(row);
  const uint keys = SPLIT_KEYS * GROUP_SPLITS;
  return uvec2(seen.x / keys, (seen.y + keys - 1) / keys);
}
// In Q8_0 a page is a row of KV_WIDTH bytes for each token, and a row more of the scales of all of them,
// halves: one for KV_BLOCK channels. Channel c of the key at a place of a cache is this byte, and has this scale.
uint byte_at(uint place, uint c) { return (place + place / PAGE_TOKENS) * KV_WIDTH + c; }
uint scale_at(uint place, uint c) {
  const uint first = (place / PAGE_TOKENS * (PAGE_TOKENS + 1) + PAGE_TOKENS) * (KV_WIDTH / 2);
  return first + place % PAGE_TOKENS * (KV_WIDTH / KV_BLOCK) + c / KV_BLOCK;
}
// A half that is no less than 0, without a number that devices may take for 0.
float scale_of_half(uint bits) {
  if (bits < 0x400u) return float(bits) * 5.9604644775390625e-8;
  return uintBitsToFloat(bits < 0x7c00u ? (bits << 13) + 0x38000000u : 0x7fc00000u);
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
