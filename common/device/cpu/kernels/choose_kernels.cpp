#include <algorithm>
#include <cstring>

#include "device/cpu/kernels/kernels.h"
#ifdef SPLIT_X86_KERNELS
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifdef SPLIT_NEON_KERNELS
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace split {
namespace {

// A set that differs from another in its products of int8 rows. Unused if the build has only the
// scalar set, like the fuzz targets' build.
[[maybe_unused]] CpuKernels with_int8(CpuKernels set, const char* name,
                                      const CpuKernels::Steps& int8) {
  set.name = name;
  set.int8 = int8;
  return set;
}

#ifdef SPLIT_X86_KERNELS

// A set that differs from AVX-512's in its kernels of rounded rows.
CpuKernels with_rounded(const char* name, const RoundedKernels& rounded, bool by_pairs) {
  CpuKernels set = kKernelsAvx512;
  static_cast<RoundedKernels&>(set) = rounded;
  if (!by_pairs) set.attend_by_chains = rounded.attend_rounded;
  set.name = name;
  set.by_pairs = by_pairs;
  return set;
}

// Whether the processor has VPDPBUSD without AVX-512, which GCC 12 has no name for.
bool dots_of_bytes() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & 1u << 4) != 0;
}

// Whether the processor has bf16 tiles, with the features that come with them, and the kernel lets
// this process use their registers.
bool tiles_granted() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBf16Tiles = 1u << 22, kHalves = 1u << 23, kTiles = 1u << 24, kBytes = 1u << 1;
  constexpr unsigned kAll = kBf16Tiles | kHalves | kTiles;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kAll) != kAll || (c & kBytes) == 0) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl's
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

}  // namespace

const CpuKernels& choose_kernels(std::string_view limit) {
  // Each limit allows the sets before it.
  constexpr std::string_view kLimits[] = {"scalar",     "avx2", "avxvnni", "avx512",  "vnni",
                                          "avx512bf16", "amx",  "neon",    "dotprod", ""};
  const auto rank = [&](std::string_view set) {
    return std::ranges::find(kLimits, set) - std::begin(kLimits);
  };
  [[maybe_unused]] const auto allowed = [&](std::string_view set) {
    return rank(set) <= rank(limit);
  };
  if (rank(limit) == std::ssize(kLimits)) {
    throw Error(ErrorKind::kInput, cat("[cpu] instruction set: expected scalar, avx2, avxvnni, "
                                       "avx512, vnni, avx512bf16, amx, neon or dotprod, got '",
                                       limit, "'"));
  }
#ifdef SPLIT_X86_KERNELS
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  const bool pairs = vnni && __builtin_cpu_supports("avx512bf16");
  static const bool tiles = pairs && tiles_granted();
  static const CpuKernels amx_kernels = with_rounded("amx", kRoundedAmx, false);
  if (tiles && allowed("amx")) return amx_kernels;
  static const CpuKernels pairs_kernels = with_rounded("avx512bf16", kRoundedAvx512bf16, true);
  if (pairs && allowed("avx512bf16")) return pairs_kernels;
  static const CpuKernels vnni_kernels = with_int8(kKernelsAvx512, "vnni", kInt8Vnni);
  if (vnni && allowed("vnni")) return vnni_kernels;
  if (avx512 && allowed("avx512")) return kKernelsAvx512;
  static const CpuKernels avxvnni_kernels = with_int8(kKernelsAvx2, "avxvnni", kInt8AvxVnni);
  if (avx2 && dots_of_bytes() && allowed("avxvnni")) return avxvnni_kernels;
  if (avx2 && allowed("avx2")) return kKernelsAvx2;
#endif
#ifdef SPLIT_NEON_KERNELS
  const bool dotprod = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  static const CpuKernels dotprod_kernels = with_int8(kKernelsNeon, "dotprod", kInt8Dotprod);
  if (dotprod && allowed("dotprod")) return dotprod_kernels;
  if (allowed("neon")) return kKernelsNeon;  // every aarch64 has it
#endif
#ifdef SPLIT_WASM_KERNELS
  return kKernelsWasm;
#else
  return kKernelsScalar;
#endif
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

}  // namespace split
