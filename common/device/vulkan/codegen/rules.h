// The fusion rules of the Vulkan device: read by the device and by the build tool that makes its
// kernels.
#pragma once

#include "compile/compile.h"

namespace split::vulkan {

inline constexpr FuseRules kFuseRules{
    .prologue = true, .rotation = true, .twins = true, .siblings = true};

}  // namespace split::vulkan
