// The capabilities of a Vulkan device, and which of its optional paths are used.
//
// SPLIT_VULKAN_DISABLE=shuffle,host_visible,matrix,halves,dots,int8_matrix,tuner,addresses,neighbours
// turns optional paths off; SPLIT_VULKAN_ADDRESSES=1 turns buffer addresses on where they are not
// known to pay. SPLIT_VULKAN_MAX_RANGE=bytes lowers the believed size limit of a binding, for
// tests.
#pragma once

#include <vulkan/vulkan.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace split::vulkan {

// The capabilities of a device, and which optional paths are used on it.
struct Capabilities {
  std::string name;  // "NVIDIA H200, driver 580.159.04"
  bool software = false;
  bool host_visible = true;  // uses device memory that the host can write
  bool discrete = false;     // a bus lies between it and the host's memory, or is thought to
  bool small_tiles =
      false;            // work shaped for few lanes; SPLIT_VULKAN_DISABLE=small_tiles turns it off
  std::string missing;  // what it lacks of our needs; empty: usable
  uint32_t api_version = 0;
  uint32_t queue_family = 0;
  uint32_t timestamp_bits = 0;    // the queue's; 0: it has no clock
  uint32_t subgroup = 1;          // lanes that shuffles reach; 1: shuffles are not used
  uint32_t most_lanes = 1;        // in a workgroup, a power of two
  bool size_control_ext = false;  // subgroup size control is an extension here, not core
  bool halves = false;            // arithmetic of halves
  bool dots = false;              // products of four bytes
  bool matrix = false;            // matrix units for halves,
  bool int8_matrix = false;       // and for numbers of 8 bits
  bool neighbours = true;         // products do the work of steps beside them in their kernels
  bool wide_numbers = false;      // shaderInt64: the tensor library's I64
  bool addresses = false;         // kernels are given addresses, not descriptors, where it pays
  uint32_t cores = 0;             // parallel workgroups; 0: unknown
  size_t max_range = 0;           // bytes of one binding
  VkPhysicalDeviceProperties properties{};
  size_t shared_bytes() const { return properties.limits.maxComputeSharedMemorySize; }
  VkPhysicalDeviceMemoryProperties memory{};
  uint64_t local_bytes() const;  // its own memory
};
Capabilities inspect(VkInstance instance, VkPhysicalDevice device);

bool has_device_extension(VkPhysicalDevice device, const char* name);
// Whether an environment variable is set and neither empty nor 0.
bool is_set(const char* variable);
// Whether SPLIT_VULKAN_DISABLE lists `path`.
bool is_disabled(const char* path);

}  // namespace split::vulkan
