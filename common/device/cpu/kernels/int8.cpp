// The products of int8 rows alone, for instruction sets that differ from another in nothing else.
#include "device/cpu/kernels/matmul_int8.h"

namespace split {

constinit const CpuKernels::Steps SPLIT_KERNELS = SPLIT_ISA::int8_steps();

}  // namespace split
