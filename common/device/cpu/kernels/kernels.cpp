// Compiled once for each instruction set: SPLIT_ISA is the namespace, SPLIT_KERNELS the table that
// this makes.
#include "device/cpu/kernels/kernels.h"

#include "device/cpu/kernels/matmul_f32.h"
#include "device/cpu/kernels/rounded.h"
#include "device/cpu/kernels/state/delta.h"

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

void attend_floats(const AttendTask& task) {
  attend_heads(task, kAttendRows,
               task.dtype == DType::kF16 ? attend_of<DType::kF16> : attend_of<DType::kF32>);
}

// x / sqrt(mean x^2 + eps) * (weight + plus).
void norm_head(const float* x, const RotateTask& task, float* __restrict to) {
  const size_t n = task.head_size;
  for (size_t i = 0; i < n; ++i) to[i] = x[i] * x[i];
  float sum = 0;
  glsl::SPLIT_ISA::reduce_sum(to, 0, 1, n, &sum);
  const float scale = glsl::SPLIT_ISA::rsqrt_f(sum * (1.0f / static_cast<float>(n)) + task.eps);
  for (size_t i = 0; i < n; ++i) to[i] = x[i] * scale * (task.weight[i] + task.plus);
}

// First half a, second half b: a cos - b sin, b cos + a sin.
void turn_head(const float* x, const float* cos, const float* sin, size_t half, float* y) {
  for (size_t i = 0; i < half; ++i) {
    const float a = x[i], b = x[i + half];
    y[i] = a * cos[i] - b * sin[i];
    y[i + half] = b * cos[i] + a * sin[i];
  }
}

void rotate(const RotateTask& task) {
  for (size_t head = 0; head < task.heads; ++head) {
    const float* x = task.x + head * task.head_size;
    float* const y = task.y + head * task.head_size;
    if (task.weight != nullptr) {
      norm_head(x, task, task.scratch);
      x = task.scratch;
    }
    turn_head(x, task.cos, task.sin, task.half, y);
    for (size_t i = 2 * task.half; i < task.head_size; ++i) y[i] = x[i];
  }
}

int relative_bucket(int places) { return glsl::SPLIT_ISA::relative_bucket(places); }

// Each row's kernels where its op finds them.
constexpr CpuKernels table() {
  CpuKernels all{};
  static_cast<RoundedKernels&>(all) = rounded_kernels();
  all.name = SPLIT_ISA_NAME;
  all.rounds_products = !glsl::kFusesProducts;
#define UNARY(name, ...) all.unary[Op::k_##name] = glsl::SPLIT_ISA::unary_##name;
#define BINARY(name, ...)                                    \
  all.binary[Op::k_##name] = glsl::SPLIT_ISA::binary_##name; \
  all.binary_by[Op::k_##name] = glsl::SPLIT_ISA::binary_by_##name;
#define REDUCE(name, ...) all.reduce[Op::k_reduce_##name] = glsl::SPLIT_ISA::reduce_##name;
#include "tensor/ops.def"
  all.matmul = matmul;
  all.matmul_transposed = matmul_transposed;
  all.attend_floats = attend_floats;
  all.attend_by_chains = attend_rounded;
  all.rotate = rotate;
  all.conv_rows = conv_rows;
  all.delta = delta;
  all.decays = decays;
  all.relative_bucket = relative_bucket;
  all.widen = widen;
  all.narrow = narrow;
  return all;
}

}  // namespace
}  // namespace SPLIT_ISA

constinit const CpuKernels SPLIT_KERNELS = SPLIT_ISA::table();

}  // namespace split
