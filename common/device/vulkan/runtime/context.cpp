#include "device/vulkan/runtime/context.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/bytes.h"
#include "base/log.h"
#include "device/vulkan/runtime/matrix_units.h"

#ifdef __SANITIZE_ADDRESS__
extern "C" const char* __lsan_default_suppressions() { return "leak:libVkLayer_\n"; }  // NOLINT
#endif

namespace split::vulkan {
namespace {

std::atomic<uint64_t> g_messages{0};

VKAPI_ATTR VkBool32 VKAPI_CALL on_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                          VkDebugUtilsMessageTypeFlagsEXT,
                                          const VkDebugUtilsMessengerCallbackDataEXT* data, void*) {
  g_messages.fetch_add(1);
  log_error(cat("[vulkan] validation: ", data->pMessage));
  return VK_FALSE;
}

bool has_instance_extension(const char* name) {
  uint32_t count = 0;
  check(vkEnumerateInstanceExtensionProperties(nullptr, &count, nullptr), "instance extensions");
  std::vector<VkExtensionProperties> all(count);
  check(vkEnumerateInstanceExtensionProperties(nullptr, &count, all.data()), "instance extensions");
  for (const auto& extension : all) {
    if (std::strcmp(extension.extensionName, name) == 0) return true;
  }
  return false;
}

bool has_layer(const char* name) {
  uint32_t count = 0;
  check(vkEnumerateInstanceLayerProperties(&count, nullptr), "layers");
  std::vector<VkLayerProperties> all(count);
  check(vkEnumerateInstanceLayerProperties(&count, all.data()), "layers");
  for (const auto& layer : all) {
    if (std::strcmp(layer.layerName, name) == 0) return true;
  }
  return false;
}

// Drivers and layers stay loaded when their instance goes: a process can load NVIDIA's driver 30
// times (580.159.04; the loader finds none after that), each of which takes 0.1 s, and what an
// unloaded one pointed to looks like a leak of ours.
void keep_drivers() {
  std::vector<std::string> names;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* to) {
        if (info->dlpi_name[0] != 0) static_cast<decltype(names)*>(to)->push_back(info->dlpi_name);
        return 0;
      },
      &names);
  for (const std::string& name : names) {
    ::dlopen(name.c_str(), RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
  }
}

}  // namespace

std::string result_name(VkResult result) {
  switch (result) {
#define NAME(x) \
  case x:       \
    return #x
    NAME(VK_SUCCESS);
    NAME(VK_NOT_READY);
    NAME(VK_TIMEOUT);
    NAME(VK_INCOMPLETE);
    NAME(VK_ERROR_OUT_OF_HOST_MEMORY);
    NAME(VK_ERROR_OUT_OF_DEVICE_MEMORY);
    NAME(VK_ERROR_INITIALIZATION_FAILED);
    NAME(VK_ERROR_DEVICE_LOST);
    NAME(VK_ERROR_MEMORY_MAP_FAILED);
    NAME(VK_ERROR_LAYER_NOT_PRESENT);
    NAME(VK_ERROR_EXTENSION_NOT_PRESENT);
    NAME(VK_ERROR_FEATURE_NOT_PRESENT);
    NAME(VK_ERROR_INCOMPATIBLE_DRIVER);
    NAME(VK_ERROR_TOO_MANY_OBJECTS);
    NAME(VK_ERROR_FRAGMENTED_POOL);
    NAME(VK_ERROR_OUT_OF_POOL_MEMORY);
#undef NAME
    default:
      return cat("VkResult ", static_cast<int>(result));
  }
}

void check(VkResult result, const char* what) {
  if (result < 0) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] ", what, ": ", result_name(result)));
  }
}

uint64_t validation_messages() { return g_messages.load(); }

Instance::Instance() {
  uint32_t version = VK_API_VERSION_1_0;
  check(vkEnumerateInstanceVersion(&version), "instance version");
  VkApplicationInfo application{};
  application.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  application.pApplicationName = "splitcompute";
  application.apiVersion = version >= VK_API_VERSION_1_3 ? VK_API_VERSION_1_3 : VK_API_VERSION_1_2;

  VkInstanceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  info.pApplicationInfo = &application;
  std::vector<const char*> extensions, layers;
  if (has_instance_extension("VK_KHR_portability_enumeration")) {
    extensions.push_back("VK_KHR_portability_enumeration");
    info.flags |= 1;  // VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR
  }
  const bool validate = is_set("SPLIT_VALIDATE");
  const VkValidationFeatureEnableEXT enabled =
      VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT;
  VkValidationFeaturesEXT features{};
  features.sType = VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT;
  features.enabledValidationFeatureCount = 1;
  features.pEnabledValidationFeatures = &enabled;
  VkDebugUtilsMessengerCreateInfoEXT messenger{};
  messenger.sType = VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT;
  messenger.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                              VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
  messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT |
                          VK_DEBUG_UTILS_MESSAGE_TYPE_PERFORMANCE_BIT_EXT;
  messenger.pfnUserCallback = on_message;
  if (validate) {
    if (!has_layer("VK_LAYER_KHRONOS_validation")) {
      throw Error(ErrorKind::kDevice,
                  "[vulkan] SPLIT_VALIDATE: expected VK_LAYER_KHRONOS_validation (package "
                  "vulkan-validationlayers), got none");
    }
    layers.push_back("VK_LAYER_KHRONOS_validation");
    extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
    features.pNext = &messenger;
    info.pNext = &features;
  }
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  info.enabledLayerCount = static_cast<uint32_t>(layers.size());
  info.ppEnabledLayerNames = layers.data();
  check(vkCreateInstance(&info, nullptr, &instance_), "vkCreateInstance");
  keep_drivers();
  if (validate) {
    const auto create = reinterpret_cast<PFN_vkCreateDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkCreateDebugUtilsMessengerEXT"));
    if (create != nullptr) {
      const VkResult result = create(instance_, &messenger, nullptr, &messenger_);
      if (result < 0) {
        vkDestroyInstance(instance_, nullptr);
        check(result, "vkCreateDebugUtilsMessengerEXT");
      }
    }
  }
}

Instance::~Instance() {
  if (messenger_ != VK_NULL_HANDLE) {
    const auto destroy = reinterpret_cast<PFN_vkDestroyDebugUtilsMessengerEXT>(
        vkGetInstanceProcAddr(instance_, "vkDestroyDebugUtilsMessengerEXT"));
    if (destroy != nullptr) destroy(instance_, messenger_, nullptr);
  }
  if (instance_ != VK_NULL_HANDLE) vkDestroyInstance(instance_, nullptr);
}

std::vector<VkPhysicalDevice> Instance::devices() const {
  uint32_t count = 0;
  const VkResult result = vkEnumeratePhysicalDevices(instance_, &count, nullptr);
  // Some loaders say so when a driver's library is there and its device is not.
  if (result == VK_ERROR_INITIALIZATION_FAILED) return {};
  check(result, "vkEnumeratePhysicalDevices");
  std::vector<VkPhysicalDevice> all(count);
  check(vkEnumeratePhysicalDevices(instance_, &count, all.data()), "vkEnumeratePhysicalDevices");
  all.resize(count);
  return all;
}

Context::Context(std::unique_ptr<Instance> instance, size_t index)
    : instance_(std::move(instance)), index_(index) {
  const std::vector<VkPhysicalDevice> devices = instance_->devices();
  if (index >= devices.size()) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] vulkan:", index, ": this machine has ",
                                        devices.size(), " Vulkan devices"));
  }
  physical_ = devices[index];
  capabilities_ = inspect(instance_->get(), physical_);
  if (!capabilities_.missing.empty()) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] ", capabilities_.name, " lacks ", capabilities_.missing));
  }
  const float priority = 1.0f;
  VkDeviceQueueCreateInfo queue{};
  queue.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  queue.queueFamilyIndex = capabilities_.queue_family;
  queue.queueCount = 1;
  queue.pQueuePriorities = &priority;
  VkPhysicalDeviceVulkan12Features features12{};
  features12.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES;
  features12.timelineSemaphore = VK_TRUE;
  features12.bufferDeviceAddress = capabilities_.addresses ? VK_TRUE : VK_FALSE;
  VkPhysicalDeviceVulkan11Features features11{};
  features11.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES;
  features11.pNext = &features12;
  features11.storageBuffer16BitAccess = VK_TRUE;
  VkPhysicalDeviceSubgroupSizeControlFeatures size_features{};
  size_features.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES;
  size_features.subgroupSizeControl = VK_TRUE;
  size_features.computeFullSubgroups = VK_TRUE;
  std::vector<const char*> extensions;
  if (capabilities_.subgroup > 1) {
    features12.pNext = &size_features;
    if (capabilities_.size_control_ext) {
      extensions.push_back(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
    }
  }
  features12.shaderInt8 = capabilities_.int8_matrix ? VK_TRUE : VK_FALSE;
  features12.shaderFloat16 = capabilities_.halves || capabilities_.matrix ? VK_TRUE : VK_FALSE;
  MatrixFeatures matrix;
  matrix.cooperativeMatrix = VK_TRUE;
  if (capabilities_.matrix) {
    extensions.push_back(kMatrixExtension);
    features12.vulkanMemoryModel = VK_TRUE;
    matrix.pNext = features12.pNext;
    features12.pNext = &matrix;
  }
  VkPhysicalDeviceShaderIntegerDotProductFeatures dots{};
  dots.sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  dots.shaderIntegerDotProduct = VK_TRUE;
  if (capabilities_.dots) {
    extensions.push_back(VK_KHR_SHADER_INTEGER_DOT_PRODUCT_EXTENSION_NAME);
    dots.pNext = features12.pNext;
    features12.pNext = &dots;
  }
  if (has_device_extension(physical_, "VK_KHR_portability_subset")) {
    extensions.push_back("VK_KHR_portability_subset");
  }
  VkDeviceCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  info.pNext = &features11;
  info.queueCreateInfoCount = 1;
  info.pQueueCreateInfos = &queue;
  info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
  info.ppEnabledExtensionNames = extensions.data();
  VkPhysicalDeviceFeatures features{};
  features.shaderInt16 = capabilities_.addresses ? VK_TRUE : VK_FALSE;
  features.shaderInt64 = capabilities_.wide_numbers ? VK_TRUE : VK_FALSE;
  info.pEnabledFeatures = &features;
  check(vkCreateDevice(physical_, &info, nullptr, &device_), "vkCreateDevice");
  vkGetDeviceQueue(device_, capabilities_.queue_family, 0, &queue_);

  VkCommandPoolCreateInfo pool{};
  pool.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  pool.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
  pool.queueFamilyIndex = capabilities_.queue_family;
  VkCommandPool command_pool = VK_NULL_HANDLE;
  const VkResult result = vkCreateCommandPool(device_, &pool, nullptr, &command_pool);
  if (result < 0) {
    vkDestroyDevice(device_, nullptr);
    check(result, "vkCreateCommandPool");
  }
  pool_ = {device_, command_pool, vkDestroyCommandPool};
}

Context::~Context() {
  if (device_ == VK_NULL_HANDLE) return;
  vkDeviceWaitIdle(device_);
  pool_.reset();
  vkDestroyDevice(device_, nullptr);
}

void begin(VkCommandBuffer commands, VkCommandBufferUsageFlags flags) {
  VkCommandBufferBeginInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  info.flags = flags;
  check(vkBeginCommandBuffer(commands, &info), "vkBeginCommandBuffer");
}
void end(VkCommandBuffer commands) { check(vkEndCommandBuffer(commands), "vkEndCommandBuffer"); }

void barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags from_access,
             VkPipelineStageFlags to, VkAccessFlags to_access) {
  VkMemoryBarrier memory{};
  memory.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  memory.srcAccessMask = from_access;
  memory.dstAccessMask = to_access;
  vkCmdPipelineBarrier(commands, from, to, 0, 1, &memory, 0, nullptr, 0, nullptr);
}

VkCommandBuffer Context::command_buffer() {
  VkCommandBufferAllocateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  info.commandPool = pool_.get();
  info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  info.commandBufferCount = 1;
  VkCommandBuffer result = VK_NULL_HANDLE;
  check(vkAllocateCommandBuffers(device_, &info, &result), "vkAllocateCommandBuffers");
  return result;
}

}  // namespace split::vulkan
