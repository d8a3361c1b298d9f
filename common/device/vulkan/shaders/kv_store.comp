R"glsl(
// Puts the rows' keys and values into their pages. One workgroup a row; in Q8_0 a lane has a block.
layout(set = 0, binding = 1) readonly buffer KeyRows { float keys[]; };
layout(set = 0, binding = 2) readonly buffer ValueRows { float values[]; };

// To nearest even, of the scale that is kept. What is no number makes the scale so.
#define PUT_BLOCK(put, c, from, first) \
  { \
    float x[KV_BLOCK]; \
    uint largest = 0; \
    [[unroll]] for (uint i = 0; i < KV_BLOCK; ++i) { \
      x[i] = from[(first) + i]; \
      largest = max(largest, floatBitsToUint(x[i]) & 0x7fffffffu); \
    } \
    const uint half_scale = half_bits(uintBitsToFloat(largest) / 127.0); \
    const float scale = scale_of_half(half_scale), inverse = scale > 0.0 ? 1.0 / scale : 0.0; \
    [[unroll]] for (uint i = 0; i < KV_BLOCK; i += 4) { \
      uint word = 0; \
      [[unroll]] for (uint j = 0; j < 4; ++j) { \
        const float q = roundEven(clamp(x[i + j] * inverse, -127.0, 127.0)); \
        word |= (uint(int(q)) & 0xffu) << 8 * j; \
      } \
      put(put_part(0), byte_at(put_local(0), (c) + i) / 4, uintBitsToFloat(word), true); \
    } \
    put(put_part(0), scale_at(put_local(0), c), scale, false); \
  }

void main() {
  const uint r = gl_WorkGroupID.x;
  if (!has_row(r)) return;
  prepare_put(0, piece.row_base + r);
  if (KV_TYPE == 3) {
    for (uint c = gl_LocalInvocationIndex * KV_BLOCK; c < 2 * KV_WIDTH; c += WORKGROUP * KV_BLOCK) {
      if (c < KV_WIDTH) PUT_BLOCK(put_k, c, keys, r * K_STRIDE + K_FIRST + c)
      else PUT_BLOCK(put_v, c - KV_WIDTH, values, r * V_STRIDE + V_FIRST + c - KV_WIDTH)
    }
    return;
  }
  for (uint c = gl_LocalInvocationIndex; c < KV_WIDTH; c += WORKGROUP) {
    put_key(0, c, keys[r * K_STRIDE + K_FIRST + c]);
    put_value(0, c, values[r * V_STRIDE + V_FIRST + c]);
  }
}
)glsl"
