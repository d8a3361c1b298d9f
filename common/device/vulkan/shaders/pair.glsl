R"glsl(
// A product is finished column by column, or by pairs of columns: the same column of the step's matrix and
// of its twin's, or two of a head that a rotation turns, (i, i + D / 2). A product in pairs, or by matrices of
// several steps, whose columns follow each other, is in one piece.
#ifdef FEW
#define WITHIN(index, count) (index)  // its tiles are moved back onto the edge
#else
#define WITHIN(index, count) min(index, (count) - 1)
#endif
#ifdef TWIN
#define RESULTS COLUMNS
uint column_of(uint pair, uint which) { return WITHIN(pair, COLUMNS); }
void fetch_result(uint n, uint r, uint pair) {
  fetch_twin(n, r, pair);
  fetch(n, r, pair);
}
void finish_result(uint n, uint r, uint pair, float product, float other) {
  twin = value_twin(n, r, pair, other);
  finish(n, r, pair, product);
}
#elif defined(KEEPS)
#ifdef ROTATED
#define RESULTS (COLUMNS / 2)
uint column_of(uint pair, uint which) {
  const uint own = WITHIN(pair, RESULTS);
  return own / (D / 2) * D + own % (D / 2) + which * (D / 2);
}
float turn_cos[FINISHES], turn_sin[FINISHES];
#else
#define RESULTS COLUMNS
uint column_of(uint column, uint which) { return WITHIN(column, COLUMNS); }
#endif
void fetch_result(uint n, uint r, uint result) {
  const uint c = column_of(result, 0), row = piece.row_base + r;
  fetch_own(n, r, c);
#ifdef ROTATED
  fetch_own(n + FINISHES, r, c + D / 2);
  const uint at = symbol(POSITIONS, row) * TABLE_STRIDE + result % (D / 2);
  turn_cos[n] = cosines[at];
  turn_sin[n] = sines[at];
#endif
#ifdef PUTS
  prepare_put(n, row);
#endif
}
void finish_one(uint n, uint r, uint c, float value) {
  keep(r, c, value);
#ifdef PUTS
  put_kv(n, c, value);
#endif
}
void finish_result(uint n, uint r, uint result, float product, float other) {
  const uint c = column_of(result, 0);
  const float a = value_own(n, r, c, product);
#ifdef ROTATED
  const float b = value_own(n + FINISHES, r, c + D / 2, other);
  const bool turns = c < THIRD;  // values do not
  finish_one(n, r, c, turns ? a * turn_cos[n] - b * turn_sin[n] : a);
  finish_one(n, r, c + D / 2, turns ? b * turn_cos[n] + a * turn_sin[n] : b);
#else
  finish_one(n, r, c, a);
#endif
}
#else
#define RESULTS piece.column_piece
uint column_of(uint column, uint which) { return WITHIN(column, piece.column_piece); }
void fetch_result(uint n, uint r, uint column) { fetch(n, r, piece.column_base + column); }
void finish_result(uint n, uint r, uint column, float product, float other) {
  finish(n, r, piece.column_base + column, product);
}
#endif
)glsl"
