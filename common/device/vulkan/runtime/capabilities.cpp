#include "device/vulkan/runtime/capabilities.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/bytes.h"
#include "device/vulkan/runtime/context.h"
#include "device/vulkan/runtime/matrix_units.h"

namespace split::vulkan {

uint64_t Capabilities::local_bytes() const {
  uint64_t most = 0;
  for (uint32_t i = 0; i < memory.memoryHeapCount; ++i) {
    const VkMemoryHeap& heap = memory.memoryHeaps[i];
    if ((heap.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0) {
      most = std::max<uint64_t>(most, heap.size);
    }
  }
  return most;
}

bool has_device_extension(VkPhysicalDevice device, const char* name) {
  uint32_t count = 0;
  check(vkEnumerateDeviceExtensionProperties(device, nullptr, &count, nullptr),
        "device extensions");
  std::vector<VkExtensionProperties> all(count);
  check(vkEnumerateDeviceExtensionProperties(device, nullptr, &count, all.data()),
        "device extensions");
  for (const auto& extension : all) {
    if (std::strcmp(extension.extensionName, name) == 0) return true;
  }
  return false;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && std::strcmp(value, "0") != 0;
}

bool is_disabled(const char* path) {
  const char* value = std::getenv("SPLIT_VULKAN_DISABLE");
  if (value == nullptr) return false;
  const std::string list = cat(",", value, ",");
  return list.find(cat(",", path, ",")) != std::string::npos;
}

namespace {

constexpr uint32_t kMinSharedBytes = 16 * 1024;
constexpr uint32_t kMinStorageBuffers = 16;

// The answers of a device of Vulkan 1.2 or later, chained as Vulkan asks for them.
struct Queried {
  Queried(VkPhysicalDevice device, bool can_size) {
    driver.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_DRIVER_PROPERTIES;
    cores.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV;
    if (has_device_extension(device, VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
      driver.pNext = &cores;
    }
    subgroup.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
    subgroup.pNext = &driver;
    size_control.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES;
    size_features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
    features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
    features11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
    features11.pNext = &features12;
    features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
    features.pNext = &features11;
    if (can_size) {
      size_control.pNext = driver.pNext;
      driver.pNext = &size_control;
      features12.pNext = &size_features;
    }
    VkPhysicalDeviceProperties2 properties{};
    properties.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
    properties.pNext = &subgroup;
    vkGetPhysicalDeviceProperties2(device, &properties);
    vkGetPhysicalDeviceFeatures2(device, &features);
  }
  Queried(const Queried&) = delete;
  Queried& operator=(const Queried&) = delete;

  // Whether subgroups of one size are there whose lanes read each other's values.
  bool shuffles() const {
    return size_features.subgroupSizeControl != VK_FALSE &&
           size_features.computeFullSubgroups != VK_FALSE &&
           (size_control.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
           (subgroup.supportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
           (subgroup.supportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0 &&
           subgroup.subgroupSize <= 64;
  }

  VkPhysicalDeviceDriverProperties driver{};
  VkPhysicalDeviceShaderSMBuiltinsPropertiesNV cores{};
  VkPhysicalDeviceSubgroupProperties subgroup{};
  VkPhysicalDeviceSubgroupSizeControlProperties size_control{};
  VkPhysicalDeviceSubgroupSizeControlFeatures size_features{};  // zeros where they are not asked
  VkPhysicalDeviceVulkan12Features features12{};
  VkPhysicalDeviceVulkan11Features features11{};
  VkPhysicalDeviceFeatures2 features{};
};

// Chooses the queue family for compute; `timestamp_bits` are its own. False where there is none.
bool choose_queue(VkPhysicalDevice device, Capabilities& result) {
  uint32_t families = 0;
  vkGetPhysicalDeviceQueueFamilyProperties(device, &families, nullptr);
  std::vector<VkQueueFamilyProperties> queues(families);
  vkGetPhysicalDeviceQueueFamilyProperties(device, &families, queues.data());
  result.queue_family = families;
  // One without graphics where there is one: an H200 ends a step 7 to 12 us sooner on it.
  for (const VkQueueFlags avoid : {VkQueueFlags{0}, VkQueueFlags{VK_QUEUE_GRAPHICS_BIT}}) {
    for (uint32_t i = families; i-- > 0;) {
      const VkQueueFlags flags = queues[i].queueFlags;
      if ((flags & VK_QUEUE_COMPUTE_BIT) != 0 && (flags & avoid) == 0) result.queue_family = i;
    }
  }
  if (result.queue_family == families) return false;
  result.timestamp_bits = queues[result.queue_family].timestampValidBits;
  return true;
}

// Whether kernels may use its matrix units.
bool has_matrix_units(VkInstance instance, VkPhysicalDevice device, const Capabilities& known,
                      const Queried& queried) {
  constexpr size_t kMatrixSharedBytes = 36 * 1024;  // shaders/thin_matrix.comp's
  if (known.subgroup != 32 || known.shared_bytes() < kMatrixSharedBytes ||
      !has_device_extension(device, kMatrixExtension) || is_disabled("matrix")) {
    return false;
  }
  MatrixFeatures matrix;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &matrix;
  vkGetPhysicalDeviceFeatures2(device, &features);
  return matrix.cooperativeMatrix != VK_FALSE && queried.features12.shaderFloat16 != VK_FALSE &&
         queried.features12.vulkanMemoryModel != VK_FALSE && has_half_tiles(instance, device);
}

bool has_dots(VkPhysicalDevice device) {
  if (!has_device_extension(device, VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME) ||
      is_disabled("dots")) {
    return false;
  }
  VkPhysicalDeviceShaderIntegerDotProductFeatures dots{};
  dots.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  VkPhysicalDeviceFeatures2 features{};
  features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  features.pNext = &dots;
  vkGetPhysicalDeviceFeatures2(device, &features);
  return dots.shaderIntegerDotProduct != VK_FALSE;
}

}  // namespace

Capabilities inspect(VkInstance instance, VkPhysicalDevice device) {
  Capabilities result;
  vkGetPhysicalDeviceProperties(device, &result.properties);
  vkGetPhysicalDeviceMemoryProperties(device, &result.memory);
  const VkPhysicalDeviceLimits& limits = result.properties.limits;
  if (is_disabled("shared")) {
    result.properties.limits.maxComputeSharedMemorySize = kMinSharedBytes;
  }
  result.software = result.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  result.host_visible = !is_disabled("host_visible");
  result.neighbours = !is_disabled("neighbours");
  result.discrete =
      result.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU || !result.host_visible;
  result.small_tiles = result.software && !is_disabled("small_tiles");
  result.api_version = result.properties.apiVersion;
  result.name = result.properties.deviceName;
  const auto lacks = [&](const std::string& what) {
    result.missing += cat(result.missing.empty() ? "" : ", ", what);
  };
  if (result.api_version < VK_API_VERSION_1_2) {
    lacks(cat("Vulkan 1.2 (it has ", VK_API_VERSION_MAJOR(result.api_version), ".",
              VK_API_VERSION_MINOR(result.api_version), ")"));
    return result;
  }
  result.size_control_ext =
      result.api_version < VK_API_VERSION_1_3 &&
      has_device_extension(device, VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
  const bool can_size = result.api_version >= VK_API_VERSION_1_3 || result.size_control_ext;
  const Queried queried(device, can_size);
  result.name += cat(", driver ", queried.driver.driverInfo);
  if (queried.features12.timelineSemaphore == VK_FALSE) lacks("timelineSemaphore");
  if (queried.features11.storageBuffer16BitAccess == VK_FALSE) lacks("storageBuffer16BitAccess");
  if (limits.maxComputeSharedMemorySize < kMinSharedBytes) {
    lacks(cat("16 KiB of shared memory (it has ", limits.maxComputeSharedMemorySize, " bytes)"));
  }
  if (limits.maxPerStageDescriptorStorageBuffers < kMinStorageBuffers) {
    lacks(cat("16 storage buffers per stage (it has ", limits.maxPerStageDescriptorStorageBuffers,
              ")"));
  }
  if (!choose_queue(device, result)) lacks("a compute queue");

  const bool shuffles = can_size && queried.shuffles() && !is_disabled("shuffle");
  if (shuffles) result.subgroup = queried.subgroup.subgroupSize;
  const uint32_t most_subgroups = queried.size_control.maxComputeWorkgroupSubgroups;
  result.most_lanes = std::bit_floor(
      std::min({limits.maxComputeWorkGroupInvocations, limits.maxComputeWorkGroupSize[0],
                shuffles ? result.subgroup * most_subgroups : ~0u}));
  result.halves = queried.features12.shaderFloat16 != VK_FALSE && !is_disabled("halves");
  result.dots = has_dots(device);
  result.wide_numbers = queried.features.features.shaderInt64 != VK_FALSE;
  result.matrix = has_matrix_units(instance, device, result, queried);
  result.int8_matrix = result.matrix && queried.features12.shaderInt8 != VK_FALSE &&
                       has_int8_tiles(instance, device) && !is_disabled("int8_matrix");

  // 0.3 to 0.5 us less of each dispatch on an H200; on a software device two to three times slower,
  // and synchronisation validation does not see through them.
  constexpr uint32_t kNvidia = 0x10de;
  result.addresses = queried.features12.bufferDeviceAddress != VK_FALSE &&
                     queried.features.features.shaderInt16 != VK_FALSE &&
                     (result.properties.vendorID == kNvidia || is_set("SPLIT_VULKAN_ADDRESSES")) &&
                     !is_disabled("addresses");
  result.cores = queried.cores.shaderSMCount;

  result.max_range = limits.maxStorageBufferRange;
  if (const char* value = std::getenv("SPLIT_VULKAN_MAX_RANGE")) {
    if (const auto bytes = parse_u64(value, 4096, limits.maxStorageBufferRange)) {
      result.max_range = *bytes;
    }
  }
  return result;
}

}  // namespace split::vulkan
