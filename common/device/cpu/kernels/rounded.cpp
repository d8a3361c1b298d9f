// The kernels of rounded rows alone, or only their products of int8 rows (SPLIT_ONLY_INT8), for
// instruction sets that differ from another in nothing else.
#ifdef SPLIT_ONLY_INT8
#include "device/cpu/kernels/matmul_int8.h"
#else
#include "device/cpu/kernels/rounded.h"
#endif

namespace split {

#ifdef SPLIT_ONLY_INT8
constinit const RoundedKernels::Steps SPLIT_KERNELS = SPLIT_ISA::int8_steps();
#else
constinit const RoundedKernels SPLIT_KERNELS = SPLIT_ISA::rounded_kernels();
#endif

}  // namespace split
