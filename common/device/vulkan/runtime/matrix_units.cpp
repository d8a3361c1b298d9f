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
  int32_t a = 0, b = 0, c = 0, result = 0;  // component types: 0 half, 1 float, 3 int8, 5 int32
  VkBool32 saturating = VK_FALSE;
  int32_t scope = 0;  // 3: a subgroup
};
// NOLINTEND(readability-identifier-naming)
using GetTiles = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t*, TileProperties*);

// Whether subgroups multiply tiles of 16 x k by k x 16 numbers of one type with sums of another.
bool has_tiles(VkInstance instance, VkPhysicalDevice device, uint32_t k, int32_t numbers,
               int32_t sums) {
  const auto get = reinterpret_cast<GetTiles>(
      vkGetInstanceProcAddr(instance, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
  uint32_t count = 0;
  if (get == nullptr || get(device, &count, nullptr) < 0) return false;
  std::vector<TileProperties> all(count);
  if (get(device, &count, all.data()) < 0) return false;
  return std::any_of(all.begin(), all.end(), [&](const TileProperties& tile) {
    return tile.m == 16 && tile.n == 16 && tile.k == k && tile.a == numbers && tile.b == numbers &&
           tile.c == sums && tile.result == sums && tile.saturating == VK_FALSE && tile.scope == 3;
  });
}

}  // namespace

bool has_half_tiles(VkInstance instance, VkPhysicalDevice device) {
  return has_tiles(instance, device, 16, 0, 1);
}
bool has_int8_tiles(VkInstance instance, VkPhysicalDevice device) {
  return has_tiles(instance, device, 32, 3, 5);
}

}  // namespace split::vulkan
