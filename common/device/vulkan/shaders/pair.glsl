R"glsl(
// Columns of a product in pairs, both of one lane: the same column of the step's matrix and of its
// twin's, or two of a head that a rotation turns, (i, i + D / 2).
#ifdef TWIN
#define ALL_PAIRS COLUMNS
uint column_of(uint of_lane) { return min(of_lane / 2, ALL_PAIRS - 1); }
void fetch_pair(uint r, uint pair) {
  fetch_twin(0, r, pair);
  fetch(0, r, pair);
}
void finish_pair(uint r, uint pair, float product, float other) {
  twin = value_twin(0, r, pair, other);
  finish(0, r, pair, product);
}
#else
#define ALL_PAIRS (COLUMNS / 2)
uint column_of(uint of_lane) {
  const uint pair = min(of_lane / 2, ALL_PAIRS - 1);
  return pair / (D / 2) * D + pair % (D / 2) + (of_lane & 1u) * (D / 2);
}
float turn_cos, turn_sin;
void fetch_pair(uint r, uint pair) {
  const uint c = column_of(2 * pair), row = piece.row_base + r;
  fetch_own(0, r, c);
  fetch_own(1, r, c + D / 2);
  const uint at = symbol(POSITIONS, row) * TABLE_STRIDE + pair % (D / 2);
  turn_cos = cosines[at];
  turn_sin = sines[at];
#ifdef PUTS
  prepare_put(0, row);
#endif
}
void finish_pair(uint r, uint pair, float product, float other) {
  const uint c = column_of(2 * pair);
  const float a = value_own(0, r, c, product), b = value_own(1, r, c + D / 2, other);
  const float first = fma(a, turn_cos, -(b * turn_sin)), second = fma(b, turn_cos, a * turn_sin);
  rotated[r * COLUMNS + c] = first;
  rotated[r * COLUMNS + c + D / 2] = second;
#ifdef PUTS
  put_kv(0, c, first);
  put_kv(0, c + D / 2, second);
#endif
}
#endif
)glsl"
