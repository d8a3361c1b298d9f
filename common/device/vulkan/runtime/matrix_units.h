// The parts of VK_KHR_cooperative_matrix used here, which Debian 12's headers lack. Numbers and
// layouts are the Vulkan specification's.
#pragma once

#include <vulkan/vulkan.h>

namespace split::vulkan {

inline constexpr const char* kMatrixExtension = "VK_KHR_cooperative_matrix";

// NOLINTBEGIN(readability-identifier-naming): the names are the specification's
struct MatrixFeatures {
  VkStructureType sType = static_cast<VkStructureType>(1000506000);
  void* pNext = nullptr;
  VkBool32 cooperativeMatrix = VK_FALSE;
  VkBool32 cooperativeMatrixRobustBufferAccess = VK_FALSE;
};
// NOLINTEND(readability-identifier-naming)

// Whether a device with the extension multiplies tiles of 16 x 16 x 16 halves and adds them to
// floats, in a subgroup. Asks the instance's functions.
bool has_half_tiles(VkInstance instance, VkPhysicalDevice device);
// The same of tiles of 16 x 32 x 16 numbers of 8 bits, with sums of 32.
bool has_int8_tiles(VkInstance instance, VkPhysicalDevice device);

}  // namespace split::vulkan
