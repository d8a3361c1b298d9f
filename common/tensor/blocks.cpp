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

bool scales_are_finite(const TensorView& matrix) {
  for (size_t at = 0; at < matrix.bytes.size(); at += block_bytes(matrix.dtype)) {
    uint16_t d = 0;
    std::memcpy(&d, matrix.bytes.data() + at, sizeof d);
    if ((d & 0x7c00u) == 0x7c00u) return false;
  }
  return true;
}

}  // namespace split
