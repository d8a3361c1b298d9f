#include "device/vulkan/runtime/matrix_units.h"

#include <algorithm>
#include <vector>

namespace split::vulkan {
namespace {

// NOLINTBEGIN(readability-identifier-naming): the names are the specification's
struct TileProperties {
  VkStructureType sType = static_cast<VkStructureType>(1000506001);
  void* pNext = nullptr;
  uint32_t m = 0, n = 0, k = 0;
  int32_t a = 0, b = 0, c = 0, result = 0;  // component types: 0 half, 1 float
  VkBool32 saturating = VK_FALSE;
  int32_t scope = 0;  // 3: a subgroup
};
// NOLINTEND(readability-identifier-naming)
using GetTiles = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, TileProperties*);

}  // namespace

bool has_half_tiles(VkInstance instance, VkPhysicalDevice device) {
  const auto get = reinterpret_cast<GetTiles>(
      vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  uint32_t count = 0;
  if (get == nullptr || get(device, &count, nullptr) < 0) return false;
  std::vector<TileProperties> all(count);
  if (get(device, &count, all.data()) < 0) return false;
  return std::any_of(all.begin(), all.end(), [](const TileProperties& tile) {
    return tile.m == 16 && tile.n == 16 && tile.k == 16 && tile.a == 0 && tile.b == 0 &&
           tile.c == 1 && tile.result == 1 && tile.saturating == VK_FALSE && tile.scope == 3;
  });
}

}  // namespace split::vulkan
