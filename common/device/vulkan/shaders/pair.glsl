R"glsl(
// A product is finished column by column, or by pairs of columns: the same column of the step's matrix and
// of its twin's, or two of a head that a rotation turns, (i, i + D / 2). A product in pairs is in one piece.
#ifdef TWIN
#define RESULTS COLUMNS
uint column_of(uint pair, uint which) { return min(pair, COLUMNS - 1); }
void fetch_result(uint n, uint r, uint pair) {
  fetch_twin(n, r, pair);
  fetch(n, r, pair);
}
void finish_result(uint n, uint r, uint pair, float product, float other) {
  twin = value_twin(n, r, pair, other);
  finish(n, r, pair, product);
}
#elif defined(ROTATED)
#define RESULTS (COLUMNS / 2)
uint column_of(uint pair, uint which) {
  const uint own = min(pair, RESULTS - 1);
  return own / (D / 2) * D + own % (D / 2) + which * (D / 2);
}
float turn_cos[FINISHES], turn_sin[FINISHES];
void fetch_result(uint n, uint r, uint pair) {
  const uint c = column_of(pair, 0), row = piece.row_base + r;
  fetch_own(n, r, c);
  fetch_own(n + FINISHES, r, c + D / 2);
  const uint at = symbol(POSITIONS, row) * TABLE_STRIDE + pair % (D / 2);
  turn_cos[n] = cosines[at];
  turn_sin[n] = sines[at];
#ifdef PUTS
  prepare_put(n, row);
#endif
}
void finish_result(uint n, uint r, uint pair, float product, float other) {
  const uint c = column_of(pair, 0);
  const float a = value_own(n, r, c, product), b = value_own(n + FINISHES, r, c + D / 2, other);
  const float first = fma(a, turn_cos[n], -(b * turn_sin[n])), second = fma(b, turn_cos[n], a * turn_sin[n]);
  rotated[r * COLUMNS + c] = first;
  rotated[r * COLUMNS + c + D / 2] = second;
#ifdef PUTS
  put_kv(n, c, first);
  put_kv(n, c + D / 2, second);
#endif
}
#else
#define RESULTS piece.column_piece
uint column_of(uint column, uint which) { return min(column, piece.column_piece - 1); }
void fetch_result(uint n, uint r, uint column) { fetch(n, r, piece.column_base + column); }
void finish_result(uint n, uint r, uint column, float product, float other) {
  finish(n, r, piece.column_base + column, product);
}
#endif
)glsl"
