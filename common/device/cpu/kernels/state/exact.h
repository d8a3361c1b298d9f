// The functions of exact_functions.def for the CPU's kernels.
#pragma once

#include "device/cpu/kernels/glsl_shim.h"

namespace split::exact {

using glsl::abs;
using glsl::floatBitsToInt;
using glsl::floor;
using glsl::intBitsToFloat;
using glsl::max;
using glsl::min;
#define BOUND(name, bits) inline constexpr int name = bits;
#define FUNC(type, name, parameters, ...) inline type name parameters __VA_ARGS__
#include "device/exact_functions.def"

}  // namespace split::exact
