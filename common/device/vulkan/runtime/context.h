// The Vulkan instance, the chosen device with its one compute queue. Owns every handle by RAII and
// checks every VkResult. Knows no Program and no kernel.
//
// SPLIT_VALIDATE=1 turns on the validation layers with synchronisation validation; their messages
// are counted and logged.
#pragma once

#include <vulkan/vulkan.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "device/vulkan/runtime/capabilities.h"

namespace split::vulkan {

// "VK_ERROR_DEVICE_LOST"
std::string result_name(VkResult result);
// Throws Error(kDevice) "[vulkan] what: VK_ERROR_..." unless `result` is a success.
void check(VkResult result, const char* what);

// Begins what a command buffer has, and ends it.
void begin(VkCommandBuffer commands, VkCommandBufferUsageFlags flags = 0);
void end(VkCommandBuffer commands);
// Lets commands behind it wait in stages `to` for those before it in `from`.
void barrier(VkCommandBuffer commands, VkPipelineStageFlags from, VkAccessFlags from_access,
             VkPipelineStageFlags to, VkAccessFlags to_access);

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

class Context {
 public:
  // A device of `instance`, by its index there. Throws Error(kDevice) naming its lacks.
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

}  // namespace split::vulkan
