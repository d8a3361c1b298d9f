#include "device/cpu/kernels.h"

namespace split {

const CpuKernels& choose_kernels(std::string_view limit) {
  if (!limit.empty() && limit != "scalar" && limit != "avx2" && limit != "avx512") {
    throw Error(ErrorKind::kInput,
                cat("[cpu] instruction set: expected scalar, avx2 or avx512, got '", limit, "'"));
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
  return kKernelsScalar;
}

}  // namespace split
