// The Vulkan instance, the chosen device with its one compute queue. Owns every
// handle by RAII and checks every VkResult. It knows no Program and no kernel.
//
// SPLIT_VALIDATE=1 turns on the validation layers with synchronisation validation; their messages
// are counted and logged. SPLIT_VULKAN_DISABLE=shuffle,host_visible,matrix,tuner,addresses,
// neighbours turns optional paths off; SPLIT_VULKAN_ADDRESSES=1 turns buffer addresses on where
// they are not known to pay. SPLIT_VULKAN_MAX_RANGE=bytes lowers the believed size limit of a
// binding, for tests.
#pragma once

#include <vulkan/vulkan.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"

namespace split::vulkan {

// "VK_ERROR_DEVICE_LOST"
std::string result_name(VkResult result);
// Throws Error(kDevice) "[vulkan] what: VK_ERROR_..." unless `result` is a success.
void check(VkResult result, const char* what);

// A handle that belongs to a VkDevice.
template <typename T>
class Handle {
 public:
  using Destroy = void(VKAPI_PTR*)(VkDevice, T, const VkAllocationCallbacks*);
  Handle() = default;
  Handle(VkDevice device, T handle, Destroy destroy)
      : device_(device), handle_(handle), destroy_(destroy) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept
      : device_(other.device_),
        handle_(std::exchange(other.handle_, VK_NULL_HANDLE)),
        destroy_(other.destroy_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      device_ = other.device_;
      handle_ = std::exchange(other.handle_, VK_NULL_HANDLE);
      destroy_ = other.destroy_;
    }
    return *this;
  }
  T get() const { return handle_; }
  void reset() {
    if (handle_ != VK_NULL_HANDLE) destroy_(device_, handle_, nullptr);
    handle_ = VK_NULL_HANDLE;
  }

 private:
  VkDevice device_ = VK_NULL_HANDLE;
  T handle_ = VK_NULL_HANDLE;
  Destroy destroy_ = nullptr;
};

// The loader's instance and, when asked for, the layers' messenger.
class Instance {
 public:
  Instance();  // Throws Error(kDevice)
  ~Instance();
  Instance(const Instance&) = delete;
  Instance& operator=(const Instance&) = delete;
  VkInstance get() const { return instance_; }
  std::vector<VkPhysicalDevice> devices() const;

 private:
  VkInstance instance_ = VK_NULL_HANDLE;
  VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
};

// The number of warnings and errors of the validation layers since the process started.
uint64_t validation_messages();

// The capabilities of a device, and which optional paths are used on it.
struct Capabilities {
  std::string name;  // "NVIDIA H200, driver 580.159.04"
  bool software = false;
  bool host_visible = true;  // memory of its own that the host sees is used as such
  bool discrete = false;     // a bus lies between it and the host's memory, or is thought to
  bool small_tiles =
      false;            // work shaped for few lanes; SPLIT_VULKAN_DISABLE=small_tiles: as on a GPU
  std::string missing;  // what this project needs and it lacks; empty when it can be used
  uint32_t api_version = 0;
  uint32_t queue_family = 0;
  uint32_t timestamp_bits = 0;    // of that queue; 0: it tells no time
  uint32_t subgroup = 1;          // lanes that shuffles reach; 1: shuffles are not used
  uint32_t most_lanes = 1;        // of a workgroup, a power of two
  bool size_control_ext = false;  // subgroup size control is an extension here, not core
  bool matrix = false;            // matrix units for halves
  bool neighbours = true;         // products do the work of steps beside them in their kernels
  bool addresses = false;         // kernels are given addresses, not descriptors, where it pays
  uint32_t cores = 0;             // that run workgroups side by side; 0: it does not say
  size_t max_range = 0;           // bytes of one binding
  VkPhysicalDeviceProperties properties{};
  size_t shared_bytes() const { return properties.limits.maxComputeSharedMemorySize; }
  VkPhysicalDeviceMemoryProperties memory{};
};
Capabilities inspect(VkInstance instance, VkPhysicalDevice device);

class Context {
 public:
  // A device of `instance`, by its index there. Throws Error(kDevice) naming what it lacks.
  Context(std::unique_ptr<Instance> instance, size_t index);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  VkDevice device() const { return device_; }
  VkQueue queue() const { return queue_; }
  VkCommandPool pool() const { return pool_.get(); }
  const Capabilities& capabilities() const { return capabilities_; }
  size_t index() const { return index_; }

  VkCommandBuffer command_buffer();

 private:
  std::unique_ptr<Instance> instance_;
  size_t index_;
  Capabilities capabilities_;
  VkPhysicalDevice physical_ = VK_NULL_HANDLE;
  VkDevice device_ = VK_NULL_HANDLE;
  VkQueue queue_ = VK_NULL_HANDLE;
  Handle<VkCommandPool> pool_;
};

// True when SPLIT_VULKAN_DISABLE lists `path`.
bool is_disabled(const char* path);

}  // namespace split::vulkan
