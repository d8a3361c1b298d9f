// Converts ggml's blocks to floats.
#include "io/gguf.h"
#include "tensor/blocks.h"

namespace split {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

float half(const std::byte* from) { return f16_to_f32(load<uint16_t>(from)); }

// Source: ggml's block_q4_1 and block_q5_1: halves d and m, for the latter the fifth bits, then 16
// bytes; a value is q d + m. block_q5_0 has no m: (q - 16) d.
template <bool fifth, bool minimum>
void widen_block(const std::byte* block, float* out) {
  const float d = half(block), m = minimum ? half(block + 2) : 0;
  const std::byte* const from = block + (minimum ? 4 : 2);
  const uint32_t high = fifth ? load<uint32_t>(from) : 0;
  for (uint32_t i = 0; i < 16; ++i) {
    const auto byte = std::to_integer<uint32_t>(from[(fifth ? 4 : 0) + i]);
    const uint32_t q[2] = {(byte & 15) | (high >> i & 1) << 4, byte >> 4 | (high >> (i + 16) & 1)
                                                                               << 4};
    for (uint32_t part = 0; part < 2; ++part) {
      const auto value = static_cast<float>(static_cast<int>(q[part]) - (minimum ? 0 : 16));
      out[i + 16 * part] = minimum ? d * value + m : d * value;
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
        dequantise_row(DType::kQ4_0, from, block.elements, out + i);
        break;
      case GgmlType::kQ8_0:
        dequantise_row(DType::kQ8_0, from, block.elements, out + i);
        break;
      case GgmlType::kQ6_K:
        dequantise_row(DType::kQ6_K, from, block.elements, out + i);
        break;
      case GgmlType::kQ4_1:
        widen_block<false, true>(from, out + i);
        break;
      case GgmlType::kQ5_0:
        widen_block<true, false>(from, out + i);
        break;
      case GgmlType::kQ5_1:
        widen_block<true, true>(from, out + i);
        break;
      case GgmlType::kQ4_K:
        dequantise_row(DType::kQ4_K, from, block.elements, out + i);
        break;
      case GgmlType::kQ5_K:
        dequantise_row(DType::kQ5_K, from, block.elements, out + i);
        break;
    }
  }
}

}  // namespace split
