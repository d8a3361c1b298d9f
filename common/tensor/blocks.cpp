#include "tensor/blocks.h"

#include <algorithm>

namespace split {

void dequantise_row(DType dtype, const std::byte* row, size_t count, float* out) {
  CHECK(is_quantised(dtype));
  for (size_t first = 0; first < count; first += kBlock, row += block_bytes(dtype)) {
    const size_t here = std::min(kBlock, count - first);
    if (dtype == DType::kQ8_0) {
      BlockQ8 block;
      std::memcpy(&block, row, sizeof block);
      const float d = f16_to_f32(block.d);
      for (size_t i = 0; i < here; ++i) out[first + i] = static_cast<float>(block.q[i]) * d;
    } else {
      BlockQ4 block;
      std::memcpy(&block, row, sizeof block);
      const float d = f16_to_f32(block.d);
      for (size_t i = 0; i < here; ++i) {
        const int byte = block.q[i % (kBlock / 2)];
        out[first + i] = static_cast<float>((i < kBlock / 2 ? byte & 15 : byte >> 4) - 8) * d;
      }
    }
  }
}

OwnedTensor dequantised(const TensorView& matrix) {
  CHECK(tensor_bytes(matrix.dtype, matrix.dims) == matrix.bytes.size());
  const auto rows = static_cast<size_t>(matrix.dims[0]);
  const auto inner = static_cast<size_t>(matrix.dims[1]);
  OwnedTensor out;
  out.storage.resize(rows * inner * sizeof(float));
  std::vector<float> row(inner);
  for (size_t r = 0; r < rows; ++r) {
    dequantise_row(matrix.dtype, matrix.bytes.data() + r * (matrix.bytes.size() / rows), inner,
                   row.data());
    if (inner > 0) {
      std::memcpy(out.storage.data() + r * inner * sizeof(float), row.data(),
                  inner * sizeof(float));
    }
  }
  out.view = {DType::kF32, matrix.dims, out.storage};
  return out;
}

namespace {

// Whether none of the numbers has every bit of its exponent.
template <typename Bits>
bool exponents_are_finite(Bytes bytes, Bits exponent) {
  Bits special = 0;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits = 0;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    special = static_cast<Bits>(special | ((bits & exponent) == exponent ? 1 : 0));
  }
  return special == 0;
}

}  // namespace

bool scales_are_finite(const TensorView& matrix) {
  for (size_t at = 0; at < matrix.bytes.size(); at += block_bytes(matrix.dtype)) {
    uint16_t d = 0;
    std::memcpy(&d, matrix.bytes.data() + at, sizeof d);
    if ((d & 0x7c00u) == 0x7c00u) return false;
  }
  return true;
}

bool values_are_finite(const TensorView& tensor) {
  switch (tensor.dtype) {
    case DType::kF32:
      return exponents_are_finite<uint32_t>(tensor.bytes, 0x7f800000u);
    case DType::kF16:
      return exponents_are_finite<uint16_t>(tensor.bytes, 0x7c00u);
    case DType::kBF16:
      return exponents_are_finite<uint16_t>(tensor.bytes, 0x7f80u);
    default:
      return !is_quantised(tensor.dtype) || scales_are_finite(tensor);
  }
}

}  // namespace split
