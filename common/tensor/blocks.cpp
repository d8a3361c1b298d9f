#include "tensor/blocks.h"

#include <algorithm>

namespace split {

uint64_t eight_of_q4_k(const std::byte* block, size_t group, size_t eight) {
  uint64_t bytes;
  std::memcpy(&bytes, block + 16 + group / 2 * kBlock + 8 * eight, sizeof bytes);
  return bytes >> (4 * (group % 2)) & 0x0f0f0f0f0f0f0f0f;
}

GroupQ4K group_q4_k(const std::byte* block, size_t group) {
  GroupQ4K result;
  std::memcpy(&result.d, block, sizeof result.d);
  std::memcpy(&result.dmin, block + 2, sizeof result.dmin);
  const auto bits = [&](size_t i) { return std::to_integer<int>(block[4 + i]); };
  const bool first = group < 4;
  result.scale = static_cast<uint8_t>(first ? bits(group) & 63
                                            : (bits(group + 4) & 15) | bits(group - 4) >> 6 << 4);
  result.minimum = static_cast<uint8_t>(first ? bits(group + 4) & 63
                                              : bits(group + 4) >> 4 | bits(group) >> 6 << 4);
  for (size_t eight = 0; eight < 2; ++eight) {
    const uint64_t bytes =
        eight_of_q4_k(block, group, eight) | eight_of_q4_k(block, group, eight + 2) << 4;
    std::memcpy(result.q + 8 * eight, &bytes, sizeof bytes);
  }
  return result;
}

GroupQ6K group_q6_k(const std::byte* block, size_t group) {
  GroupQ6K result;
  const size_t part = group / 4, quarter = group % 4;
  const std::byte *low = block + 64 * part + 32 * (quarter % 2), *high = block + 128 + 32 * part;
  for (size_t l = 0; l < kBlock; ++l) {
    const int four = std::to_integer<int>(low[l]) >> (4 * (quarter / 2)) & 15;
    const int two = std::to_integer<int>(high[l]) >> (2 * quarter) & 3;
    result.q[l] = static_cast<int8_t>((four | two << 4) - 32);
  }
  std::memcpy(result.scales, block + 192 + 8 * part + 2 * quarter, sizeof result.scales);
  std::memcpy(&result.d, block + 208, sizeof result.d);
  return result;
}

namespace {

void dequantise_q5_k(const std::byte* block, size_t group, float* to) {
  std::byte four[144];
  std::memcpy(four, block, 16);
  std::memcpy(four + 16, block + 48, 128);
  const GroupQ4K of = group_q4_k(four, group);
  const float factor = f16_to_f32(of.d) * static_cast<float>(of.scale);
  const float less = f16_to_f32(of.dmin) * static_cast<float>(of.minimum);
  for (size_t l = 0; l < kBlock; ++l) {
    const int byte = of.q[l % (kBlock / 2)];
    const int q = (l < kBlock / 2 ? byte & 15 : byte >> 4) |
                  (std::to_integer<int>(block[16 + l]) >> group & 1) << 4;
    to[l] = factor * static_cast<float>(q) - less;
  }
}

void dequantise_k_row(DType dtype, const std::byte* row, size_t count, float* out) {
  CHECK(count % kSuperBlock == 0);
  for (size_t first = 0; first < count; first += kSuperBlock, row += block_bytes(dtype)) {
    for (size_t group = 0; group < kSuperBlock / kBlock; ++group) {
      float* const to = out + first + group * kBlock;
      if (dtype == DType::kQ4_K) {
        const GroupQ4K of = group_q4_k(row, group);
        const float factor = f16_to_f32(of.d) * static_cast<float>(of.scale);
        const float less = f16_to_f32(of.dmin) * static_cast<float>(of.minimum);
        for (size_t i = 0; i < kBlock / 2; ++i) {
          to[i] = factor * static_cast<float>(of.q[i] & 15) - less;
          to[i + kBlock / 2] = factor * static_cast<float>(of.q[i] >> 4) - less;
        }
        continue;
      }
      if (dtype == DType::kQ5_K) {
        dequantise_q5_k(row, group, to);
        continue;
      }
      const GroupQ6K of = group_q6_k(row, group);
      for (size_t i = 0; i < kBlock; ++i) {
        const int8_t half = of.scales[i < kBlock / 2 ? 0 : 1];
        const auto scale = static_cast<float>(half);
        to[i] = f16_to_f32(of.d) * scale * static_cast<float>(of.q[i]);
      }
    }
  }
}

}  // namespace

void dequantise_row(DType dtype, const std::byte* row, size_t count, float* out) {
  CHECK(is_quantised(dtype));
  if (is_k_quant(dtype)) return dequantise_k_row(dtype, row, count, out);
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

// Whether no number has all exponent bits set.
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
  const auto finite = [&](size_t at) {
    uint16_t d = 0;
    std::memcpy(&d, matrix.bytes.data() + at, sizeof d);
    return (d & 0x7c00u) != 0x7c00u;
  };
  const size_t scale = matrix.dtype == DType::kQ6_K ? 208 : 0;  // its offset in a block
  const bool minima = matrix.dtype == DType::kQ4_K || matrix.dtype == DType::kQ5_K;
  for (size_t at = 0; at < matrix.bytes.size(); at += block_bytes(matrix.dtype)) {
    if (!finite(at + scale) || (minima && !finite(at + 2))) return false;
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
