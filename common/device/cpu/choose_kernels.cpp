#include <algorithm>
#include <cstring>

#include "device/cpu/kernels.h"
#include "tensor/blocks.h"

namespace split {

const CpuKernels& choose_kernels(std::string_view limit) {
  if (!limit.empty() && limit != "scalar" && limit != "avx2" && limit != "avx512" &&
      limit != "neon") {
    throw Error(
        ErrorKind::kInput,
        cat("[cpu] instruction set: expected scalar, avx2, avx512 or neon, got '", limit, "'"));
  }
#ifdef SPLIT_X86_KERNELS
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx512 && (limit.empty() || limit == "avx512")) return kKernelsAvx512;
  if (avx2 && limit != "scalar") return kKernelsAvx2;
#endif
#ifdef SPLIT_NEON_KERNELS  // every aarch64 has it
  if (limit != "scalar") return kKernelsNeon;
#endif
  return kKernelsScalar;
}

void pack_matrix(const std::byte* w, DType dtype, size_t inner, size_t width, size_t first,
                 size_t last, std::byte* packed) {
  const size_t element = dtype_size(dtype);
  for (size_t k = first; k < last; ++k) {
    for (size_t c = 0; c < width; c += kPanelColumns) {
      const size_t columns = std::min(kPanelColumns, width - c);
      std::memcpy(packed + (c * inner + k * columns) * element, w + (k * width + c) * element,
                  columns * element);
    }
  }
}

void pack_blocks(const std::byte* w, DType dtype, size_t inner, size_t width, size_t panel,
                 std::byte* packed) {
  const size_t blocks = blocks_of(static_cast<int64_t>(inner)), each = block_bytes(dtype);
  const size_t first = panel * kPanelColumns, columns = std::min(kPanelColumns, width - first);
  std::byte* to = packed + first * blocks * each;
  for (size_t b = 0; b < blocks; ++b, to += columns * each) {
    std::byte* const numbers = to + columns * sizeof(uint16_t);
    for (size_t c = 0; c < columns; ++c) {
      const std::byte* const block = w + ((first + c) * blocks + b) * each;
      std::memcpy(to + c * sizeof(uint16_t), block, sizeof(uint16_t));
      const std::byte* const q = block + sizeof(uint16_t);
      if (dtype == DType::kQ8_0) {
        for (size_t k = 0; k < kBlock; ++k) numbers[k * columns + c] = q[k];
        continue;
      }
      const auto nibble = [&](size_t k) {
        return k < kBlock / 2 ? q[k] & std::byte{15} : q[k - kBlock / 2] >> 4;
      };
      for (size_t k = 0; k < kBlock; k += 2) {
        numbers[k / 2 * columns + c] = nibble(k) | nibble(k + 1) << 4;
      }
    }
  }
}

}  // namespace split
