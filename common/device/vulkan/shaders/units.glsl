R"glsl(
// Shapes of the products by matrix units: x [rows, K] and w [columns, K] are halves, or become halves
// on their way, K is a multiple of 16, sums are floats.
#define SUM fcoopmatNV<32, gl_ScopeSubgroup, LM, LN>
#define HALF_SUM fcoopmatNV<16, gl_ScopeSubgroup, LM, LN>
layout(set = 0, binding = 1) restrict readonly buffer X { uvec4 x[]; };
// K is walked by places: those of chunks in a row of w. A chunk of x is a uvec4, 8 halves.
#ifdef IN_BLOCKS
#define W_CHUNK uvec3
bool is_in_order(uint place) { return place >= BY_SIDE * LANES; }
uint chunk_of_place(uint place) {
  const uint t = place / SIDE;
  return is_in_order(place) ? place : (t / LANES * SIDE + place % SIDE) * LANES + t % LANES;
}
W_CHUNK w_at(uint which, uint column, uint place) { return chunk_at(which, column, place, is_in_order(place)); }
uvec4 rounded_halves_of(W_CHUNK chunk) {
  const vec4 scale = vec4(scale_of(chunk)), more = vec4(-less_of(chunk));
  const vec4 low = fma(quarter_of_w(chunk, 0), scale, more);
  const vec4 high = fma(quarter_of_w(chunk, 1), scale, more);
  return uvec4(packHalf2x16(low.xy), packHalf2x16(low.zw), packHalf2x16(high.xy),
               packHalf2x16(high.zw));
}
#ifdef FEW
uvec4 halves_of(W_CHUNK chunk) { return rounded_halves_of(chunk); }
#else
// Gives the same bits without floats: numbers become the last bits of halves from 1024 on, whose fraction is
// whole, less 1024 and their zero; the product with the scale, a half, is rounded once. A scale of Q6_K
// or Q4_K is no half. On an H200 a prompt of GPT-2 124M in Q8_0 takes 0.93 of the time, but few rows
// of XL, which wait for weights, 1.05.
uint two_of(uint bits, float16_t zero, float16_t scale) {
  return packFloat2x16((unpackFloat2x16(bits) - zero) * scale);
}
uint low_halves(uint a, uint b) { return (a & 0xffffu) | b << 16; }
uint high_halves(uint a, uint b) { return a >> 16 | (b & 0xffff0000u); }
uvec4 halves_of(W_CHUNK chunk) {
  if (W_TYPE >= 5) return rounded_halves_of(chunk);
  const float16_t scale = float16_t(uintBitsToFloat(chunk.z));
  uint a[2], b[2];  // two numbers each, those that lie 16 bits apart
  [[unroll]] for (uint i = 0; i < 2; ++i) {
    if (W_TYPE == 3) {
      const float16_t zero = float16_t(1024 + 128);
      a[i] = two_of(((chunk.x >> (8 * i)) & 0x00ff00ffu) ^ 0x64806480u, zero, scale);
      b[i] = two_of(((chunk.y >> (8 * i)) & 0x00ff00ffu) ^ 0x64806480u, zero, scale);
    } else {
      const float16_t zero = float16_t(1024 + 8);
      a[i] = two_of(((chunk.x >> (4 * i)) & 0x000f000fu) | 0x64006400u, zero, scale);
      b[i] = two_of(((chunk.x >> (8 + 4 * i)) & 0x000f000fu) | 0x64006400u, zero, scale);
    }
  }
  const uvec2 low = uvec2(low_halves(a[0], a[1]), low_halves(b[0], b[1]));
  const uvec2 high = uvec2(high_halves(a[0], a[1]), high_halves(b[0], b[1]));
  return W_TYPE == 3 ? uvec4(low.x, high.x, low.y, high.y) : uvec4(low, high);
}
#endif
#else
#define W_CHUNK uvec4
layout(set = 0, binding = W_BINDING) restrict readonly buffer W { uvec4 w[]; };
#ifdef TWIN
layout(set = 0, binding = TWIN_BINDING) restrict readonly buffer TwinW { uvec4 twin_w[]; };
#endif
uint chunk_of_place(uint place) { return place; }
W_CHUNK w_at(uint which, uint column, uint place) { return OF_MATRIX(which, w, column * CHUNKS + place); }
uvec4 halves_of(W_CHUNK chunk) { return chunk; }
#endif
uvec4 x_at(uint row, uint place) { return x[row * CHUNKS + chunk_of_place(place)]; }
#ifdef FEW
const uint FINISHES = (LM * LN * TILES_M * TILES_N * PARTS_N / EACH + WORKGROUP - 1) / WORKGROUP;
#else
#define FINISHES 1
#endif
// Columns in pairs are loaded from `first` on, those of one kind before the others. This is the kind of the
// load whose first column is `least`, known when it is compiled where no load mixes them.
#define KIND_OF(first, least, stride, each_kind) \
  min(((each_kind) % (stride) == 0 ? (least) : (least) + (first)) / (each_kind), EACH - 1)
)glsl"
