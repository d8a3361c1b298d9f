// Compiled once for each instruction set: SPLIT_ISA is the namespace, SPLIT_KERNELS the table that
// this makes.
#include "device/cpu/kernels/kernels.h"

#include "device/cpu/kernels/glsl_shim.h"
#include "device/cpu/kernels/matmul_bf16_fma.h"
#include "device/cpu/kernels/matmul_f32.h"
#include "device/cpu/kernels/matmul_int8.h"
#include "device/cpu/kernels/rounding.h"
#if defined(__AMX_BF16__)
#include "device/cpu/kernels/matmul_amx.h"
#elif defined(__AVX512BF16__)
#include "device/cpu/kernels/matmul_bf16_pairs.h"
#endif
#include "device/device.h"

namespace split {
namespace glsl::SPLIT_ISA {

using namespace split::glsl;  // NOLINT: the table's rows are GLSL

#define FUNC(type, name, parameters, ...) static inline type name parameters __VA_ARGS__
#define UNARY(name, forward, gradient)                                             \
  void unary_##name(const float* __restrict in, float* __restrict out, size_t n) { \
    for (size_t i = 0; i < n; ++i) {                                               \
      const float x = in[i];                                                       \
      out[i] = forward;                                                            \
    }                                                                              \
  }
#define BINARY(name, forward, gradient_x, gradient_z)                                             \
  void binary_##name(const float* __restrict left, const float* __restrict right,                 \
                     float* __restrict out, size_t n) {                                           \
    for (size_t i = 0; i < n; ++i) {                                                              \
      const float x = left[i], z = right[i];                                                      \
      out[i] = forward;                                                                           \
    }                                                                                             \
  }                                                                                               \
  void binary_by_##name(const float* __restrict left, float z, float* __restrict out, size_t n) { \
    for (size_t i = 0; i < n; ++i) {                                                              \
      const float x = left[i];                                                                    \
      out[i] = forward;                                                                           \
    }                                                                                             \
  }
#define REDUCE(name, start, combine, gradient)                                            \
  struct Reduce_##name {                                                                  \
    static float first() { return start; }                                                \
    static float both(float acc, float x) { return combine; }                             \
  };                                                                                      \
  void reduce_##name(const float* in, size_t stride, size_t rows, size_t n, float* out) { \
    reduce_rows<Reduce_##name, 4>(in, stride, rows, n, out);                              \
  }

// Some rows together: each alone would wait for its own chains.
template <typename Op, size_t Rows>
void reduce_rows(const float* in, size_t stride, size_t rows, size_t n, float* out) {
  for (; rows >= Rows; rows -= Rows, in += Rows * stride, out += Rows) {
    float chains[Rows][16];
    for (auto& chain : chains) {
      for (float& c : chain) c = Op::first();
    }
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
      for (size_t row = 0; row < Rows; ++row) {
        const float* const x = in + row * stride + i;
        _Pragma("GCC unroll 1")  // or it is never vectorised
            for (size_t lane = 0; lane < 16; ++lane) {
          chains[row][lane] = Op::both(chains[row][lane], x[lane]);
        }
      }
    }
    for (size_t row = 0; row < Rows; ++row) {
      float* const chain = chains[row];
      for (size_t lane = 0; i + lane < n; ++lane) {
        chain[lane] = Op::both(chain[lane], in[row * stride + i + lane]);
      }
      for (size_t half = 8; half > 0; half /= 2) {
        for (size_t lane = 0; lane < half; ++lane) {
          chain[lane] = Op::both(chain[lane], chain[lane + half]);
        }
      }
      out[row] = chain[0];
    }
  }
  if constexpr (Rows > 1) {
    if (rows > 0) reduce_rows<Op, 1>(in, stride, rows, n, out);
  }
}

#include "tensor/ops.def"

}  // namespace glsl::SPLIT_ISA

}  // namespace split

#include "device/cpu/kernels/attention.h"
#include "device/cpu/kernels/page_attention.h"
#include "device/cpu/kernels/rotate.h"

namespace split {
namespace SPLIT_ISA {
namespace {

template <DType dtype>
void widen_typed(const std::byte* from, float* to, size_t n) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store(to + i, load_as<dtype>(from + i * size_of(dtype)));
  if (i < n) {
    float lanes[16];
    store(lanes, load_as<dtype>(from + i * size_of(dtype), n - i));
    __builtin_memcpy(to + i, lanes, (n - i) * sizeof(float));
  }
}

void widen(const std::byte* from, DType dtype, float* to, size_t n) {
  switch (dtype) {
    case DType::kF16:
      return widen_typed<DType::kF16>(from, to, n);
    case DType::kBF16:
      return widen_typed<DType::kBF16>(from, to, n);
    default:
      __builtin_memcpy(to, from, n * sizeof(float));
  }
}

void narrow(const float* from, DType dtype, std::byte* to, size_t n) {
  if (dtype == DType::kQ8_0) {
    for (size_t i = 0; i < n; i += kBlock) quantise_block(from + i, to + kv_bytes(dtype, i));
    return;
  }
  if (dtype != DType::kF16) {
    __builtin_memcpy(to, from, n * sizeof(float));
    return;
  }
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store_f16(to + 2 * i, load(from + i));
  if (i < n) {
    std::byte halves[32];
    store_f16(halves, load_as<DType::kF32>(reinterpret_cast<const std::byte*>(from + i), n - i));
    __builtin_memcpy(to + 2 * i, halves, 2 * (n - i));
  }
}

void store_kv(const StoreKvTask& task) {
  if (task.dtype == DType::kBF16) return store_kv_pairs(task);
  if (task.dtype == DType::kQ8_0) return store_kv_blocks(task);
  const size_t bytes = kv_bytes(task.dtype, task.head_size);  // of a token in a head
  for (size_t r = 0; r < task.rows; ++r) {
    size_t at = (task.slot + r) * bytes;
    for (size_t c = 0; c < task.channels; c += task.head_size, at += kPageTokens * bytes) {
      narrow(task.from + r * task.stride + c, task.dtype, task.page + at, task.head_size);
    }
  }
}

template <bool blocks>
constexpr CpuKernels::Steps few = {round_to_floats<blocks>, matmul_steps, kBlock * sizeof(float),
                                   0};

}  // namespace
}  // namespace SPLIT_ISA

namespace SPLIT_ISA {
namespace {

// Each row's kernels where its op finds them.
constexpr CpuKernels table() {
  CpuKernels all{};
  all.name = SPLIT_ISA_NAME;
#define UNARY(name, ...) all.unary[Op::k_##name] = glsl::SPLIT_ISA::unary_##name;
#define BINARY(name, ...)                                    \
  all.binary[Op::k_##name] = glsl::SPLIT_ISA::binary_##name; \
  all.binary_by[Op::k_##name] = glsl::SPLIT_ISA::binary_by_##name;
#define REDUCE(name, ...) all.reduce[Op::k_reduce_##name] = glsl::SPLIT_ISA::reduce_##name;
#include "tensor/ops.def"
  all.matmul = matmul;
  all.matmul_transposed = matmul_transposed;
  all.bf16 = {few<false>, {}, 0};
  all.blocks = {few<true>, {}, 0};
#if defined(__AMX_BF16__)
  all.bf16.many = {round_to_tiles<false>, matmul_tiles, kTileRow, kPartSteps};
  all.bf16.many_from = 1;
  all.blocks.many = {round_to_tiles<true>, matmul_tiles, kTileRow, 0};
  all.blocks.many_from = 3;
#elif defined(__AVX512BF16__)
  all.bf16.many = all.blocks.many = {round_to_tiles<false>, matmul_pairs, kTileRow, 0};
  all.bf16.many_from = all.blocks.many_from = 1;
#endif
  all.int8 = int8_steps();
  all.dequantise = dequantise;
  all.store_kv = store_kv;
  all.attend = attend;
  all.rotate = rotate;
  all.widen = widen;
  all.narrow = narrow;
  return all;
}

}  // namespace
}  // namespace SPLIT_ISA

constinit const CpuKernels SPLIT_KERNELS = SPLIT_ISA::table();

}  // namespace split
