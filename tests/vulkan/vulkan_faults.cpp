#include "vulkan_faults.h"

#include <vulkan/vulkan.h>

#include <atomic>
#include <mutex>

namespace split::test {
namespace {

std::mutex g_mutex;  // pipelines are made by many threads
VulkanFaults g_faults;
std::vector<const void*> g_calls;
std::atomic<int64_t> g_objects{0};

// Whether the call at `from` fails.
bool strikes(const void* from) {
  const std::lock_guard lock(g_mutex);
  const auto n = static_cast<int64_t>(g_calls.size());
  g_calls.push_back(from);
  return g_faults.at >= 0 && (n == g_faults.at || (g_faults.for_good && n > g_faults.at));
}

VkResult fault() { return g_faults.memory ? VK_ERROR_OUT_OF_DEVICE_MEMORY : VK_ERROR_DEVICE_LOST; }

}  // namespace

void set_vulkan_faults(const VulkanFaults& faults) {
  const std::lock_guard lock(g_mutex);
  g_faults = faults;
  g_calls.clear();
}

std::vector<const void*> vulkan_calls() {
  const std::lock_guard lock(g_mutex);
  return g_calls;
}

int64_t vulkan_objects() { return g_objects; }

}  // namespace split::test

// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming): the linker's names
using split::test::fault;
using split::test::g_objects;
using split::test::strikes;

#define FAILS(name, parameters, arguments)                    \
  extern "C" VkResult __real_##name parameters;               \
  extern "C" VkResult __wrap_##name parameters {              \
    if (strikes(__builtin_return_address(0))) return fault(); \
    return __real_##name arguments;                           \
  }
// Those that wait have waited when they fail: what is destroyed after that is not in use.
#define FAILS_LATE(name, parameters, arguments)                     \
  extern "C" VkResult __real_##name parameters;                     \
  extern "C" VkResult __wrap_##name parameters {                    \
    const VkResult result = __real_##name arguments;                \
    return strikes(__builtin_return_address(0)) ? fault() : result; \
  }
#define MAKES(create, Info, T, destroy)                                                         \
  extern "C" VkResult __real_##create(VkDevice, const Info*, const VkAllocationCallbacks*, T*); \
  extern "C" VkResult __wrap_##create(VkDevice device, const Info* info,                        \
                                      const VkAllocationCallbacks* allocator, T* made) {        \
    if (strikes(__builtin_return_address(0))) return fault();                                   \
    const VkResult result = __real_##create(device, info, allocator, made);                     \
    if (result == VK_SUCCESS) ++g_objects;                                                      \
    return result;                                                                              \
  }                                                                                             \
  extern "C" void __real_##destroy(VkDevice, T, const VkAllocationCallbacks*);                  \
  extern "C" void __wrap_##destroy(VkDevice device, T object,                                   \
                                   const VkAllocationCallbacks* allocator) {                    \
    if (object != VK_NULL_HANDLE) --g_objects;                                                  \
    __real_##destroy(device, object, allocator);                                                \
  }

MAKES(vkAllocateMemory, VkMemoryAllocateInfo, VkDeviceMemory, vkFreeMemory)
MAKES(vkCreateBuffer, VkBufferCreateInfo, VkBuffer, vkDestroyBuffer)
MAKES(vkCreateCommandPool, VkCommandPoolCreateInfo, VkCommandPool, vkDestroyCommandPool)
MAKES(vkCreateDescriptorPool, VkDescriptorPoolCreateInfo, VkDescriptorPool, vkDestroyDescriptorPool)
MAKES(vkCreateDescriptorSetLayout, VkDescriptorSetLayoutCreateInfo, VkDescriptorSetLayout,
      vkDestroyDescriptorSetLayout)
MAKES(vkCreatePipelineCache, VkPipelineCacheCreateInfo, VkPipelineCache, vkDestroyPipelineCache)
MAKES(vkCreatePipelineLayout, VkPipelineLayoutCreateInfo, VkPipelineLayout, vkDestroyPipelineLayout)
MAKES(vkCreateQueryPool, VkQueryPoolCreateInfo, VkQueryPool, vkDestroyQueryPool)
MAKES(vkCreateSemaphore, VkSemaphoreCreateInfo, VkSemaphore, vkDestroySemaphore)
MAKES(vkCreateShaderModule, VkShaderModuleCreateInfo, VkShaderModule, vkDestroyShaderModule)

extern "C" VkResult __real_vkCreateInstance(const VkInstanceCreateInfo*,
                                            const VkAllocationCallbacks*, VkInstance*);
extern "C" VkResult __wrap_vkCreateInstance(const VkInstanceCreateInfo* info,
                                            const VkAllocationCallbacks* allocator,
                                            VkInstance* made) {
  if (strikes(__builtin_return_address(0))) return fault();
  const VkResult result = __real_vkCreateInstance(info, allocator, made);
  if (result == VK_SUCCESS) ++g_objects;
  return result;
}
extern "C" void __real_vkDestroyInstance(VkInstance, const VkAllocationCallbacks*);
extern "C" void __wrap_vkDestroyInstance(VkInstance instance,
                                         const VkAllocationCallbacks* allocator) {
  --g_objects;
  __real_vkDestroyInstance(instance, allocator);
}
extern "C" VkResult __real_vkCreateDevice(VkPhysicalDevice, const VkDeviceCreateInfo*,
                                          const VkAllocationCallbacks*, VkDevice*);
extern "C" VkResult __wrap_vkCreateDevice(VkPhysicalDevice physical, const VkDeviceCreateInfo* info,
                                          const VkAllocationCallbacks* allocator, VkDevice* made) {
  if (strikes(__builtin_return_address(0))) return fault();
  const VkResult result = __real_vkCreateDevice(physical, info, allocator, made);
  if (result == VK_SUCCESS) ++g_objects;
  return result;
}
extern "C" void __real_vkDestroyDevice(VkDevice, const VkAllocationCallbacks*);
extern "C" void __wrap_vkDestroyDevice(VkDevice device, const VkAllocationCallbacks* allocator) {
  --g_objects;
  __real_vkDestroyDevice(device, allocator);
}
extern "C" VkResult __real_vkCreateComputePipelines(VkDevice, VkPipelineCache, uint32_t,
                                                    const VkComputePipelineCreateInfo*,
                                                    const VkAllocationCallbacks*, VkPipeline*);
extern "C" VkResult __wrap_vkCreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                                    uint32_t count,
                                                    const VkComputePipelineCreateInfo* infos,
                                                    const VkAllocationCallbacks* allocator,
                                                    VkPipeline* made) {
  if (strikes(__builtin_return_address(0))) return fault();
  const VkResult result =
      __real_vkCreateComputePipelines(device, cache, count, infos, allocator, made);
  if (result == VK_SUCCESS) g_objects += count;
  return result;
}
extern "C" void __real_vkDestroyPipeline(VkDevice, VkPipeline, const VkAllocationCallbacks*);
extern "C" void __wrap_vkDestroyPipeline(VkDevice device, VkPipeline pipeline,
                                         const VkAllocationCallbacks* allocator) {
  if (pipeline != VK_NULL_HANDLE) --g_objects;
  __real_vkDestroyPipeline(device, pipeline, allocator);
}

FAILS(vkEnumerateInstanceVersion, (uint32_t * version), (version))
FAILS(vkEnumerateInstanceExtensionProperties,
      (const char* layer, uint32_t* count, VkExtensionProperties* out), (layer, count, out))
FAILS(vkEnumerateDeviceExtensionProperties,
      (VkPhysicalDevice device, const char* layer, uint32_t* count, VkExtensionProperties* out),
      (device, layer, count, out))
FAILS(vkEnumeratePhysicalDevices, (VkInstance instance, uint32_t* count, VkPhysicalDevice* out),
      (instance, count, out))
FAILS(vkAllocateCommandBuffers,
      (VkDevice device, const VkCommandBufferAllocateInfo* info, VkCommandBuffer* out),
      (device, info, out))
FAILS(vkAllocateDescriptorSets,
      (VkDevice device, const VkDescriptorSetAllocateInfo* info, VkDescriptorSet* out),
      (device, info, out))
FAILS(vkBeginCommandBuffer, (VkCommandBuffer commands, const VkCommandBufferBeginInfo* info),
      (commands, info))
FAILS(vkEndCommandBuffer, (VkCommandBuffer commands), (commands))
FAILS(vkBindBufferMemory,
      (VkDevice device, VkBuffer buffer, VkDeviceMemory memory, VkDeviceSize offset),
      (device, buffer, memory, offset))
FAILS(vkMapMemory,
      (VkDevice device, VkDeviceMemory memory, VkDeviceSize offset, VkDeviceSize size,
       VkMemoryMapFlags flags, void** out),
      (device, memory, offset, size, flags, out))
FAILS(vkGetPipelineCacheData, (VkDevice device, VkPipelineCache cache, size_t* size, void* out),
      (device, cache, size, out))
FAILS(vkQueueSubmit, (VkQueue queue, uint32_t count, const VkSubmitInfo* infos, VkFence fence),
      (queue, count, infos, fence))
FAILS_LATE(vkGetSemaphoreCounterValue, (VkDevice device, VkSemaphore semaphore, uint64_t* value),
           (device, semaphore, value))
FAILS_LATE(vkWaitSemaphores, (VkDevice device, const VkSemaphoreWaitInfo* info, uint64_t timeout),
           (device, info, timeout))
FAILS_LATE(vkDeviceWaitIdle, (VkDevice device), (device))
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
