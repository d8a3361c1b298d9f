// ggml's blocks as floats.
#include "io/gguf.h"

namespace split {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half(const std::byte* from) { return f16_to_f32(load<uint16_t>(from)); }

// Source: ggml's block_q4_0: a half d, then 16 bytes: value i in the low, i + 16 in the high
// nibble.
void widen_q4_0(const std::byte* block, float* out) {
  const float d = half(block);
  for (int i = 0; i < 16; ++i) {
    const int byte = std::to_integer<int>(block[2 + i]);
    out[i] = d * static_cast<float>((byte & 15) - 8);
    out[i + 16] = d * static_cast<float>((byte >> 4) - 8);
  }
}
// Source: ggml's block_q8_0: a half d, then 32 signed bytes.
void widen_q8_0(const std::byte* block, float* out) {
  const float d = half(block);
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(load<int8_t>(block + 2 + i));
}
// Source: ggml's block_q6_K: of 256 values the low 4 bits (128 bytes), the high 2 bits (64), 16
// signed scales, a half d. In each half of 128 values, quarter j's value l has its low bits in byte
// 32 (j % 2) + l, nibble j / 2, its high bits in byte l, bits 2 j, and its scale in 2 j + l / 16.
void widen_q6_k(const std::byte* block, float* out) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float d = half(block + 208);
  for (int part = 0; part < 2; ++part, low += 64, high += 32, scales += 8, out += 128) {
    for (int j = 0; j < 4; ++j) {
      for (int l = 0; l < 32; ++l) {
        const int four = std::to_integer<int>(low[32 * (j % 2) + l]) >> (4 * (j / 2)) & 15;
        const int two = std::to_integer<int>(high[l]) >> (2 * j) & 3;
        const auto scale = static_cast<float>(load<int8_t>(scales + 2 * j + l / 16));
        out[32 * j + l] = d * scale * static_cast<float>((four | two << 4) - 32);
      }
    }
  }
}

}  // namespace

void gguf_floats(const GgufTensor& tensor, size_t first, size_t count, float* out) {
  const GgmlBlock block = ggml_block(tensor.type);
  CHECK(first % block.elements == 0 && count % block.elements == 0);
  const std::byte* from = tensor.bytes.data() + first / block.elements * block.bytes;
  for (size_t i = 0; i < count; i += block.elements, from += block.bytes) {
    switch (tensor.type) {
      case GgmlType::kF32:
        out[i] = load<float>(from);
        break;
      case GgmlType::kF16:
        out[i] = half(from);
        break;
      case GgmlType::kBF16:
        out[i] = bf16_to_f32(load<uint16_t>(from));
        break;
      case GgmlType::kQ4_0:
        widen_q4_0(from, out + i);
        break;
      case GgmlType::kQ8_0:
        widen_q8_0(from, out + i);
        break;
      case GgmlType::kQ6_K:
        widen_q6_k(from, out + i);
        break;
    }
  }
}

}  // namespace split
