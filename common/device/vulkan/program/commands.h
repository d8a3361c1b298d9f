// Kernels bound to buffers, as every recorder writes them: those of Programs, and of a schedule of
// the tensor library.
#pragma once

#include <array>

#include "device/vulkan/program/pipelines.h"

namespace split::vulkan {

struct Range {
  VkBuffer buffer = VK_NULL_HANDLE;
  VkDeviceSize offset = 0, bytes = 0;
  auto operator<=>(const Range&) const = default;
};
using Ranges = std::vector<Range>;  // what one kernel is bound to, in the order of its bindings

struct BoundKernel {
  const Pipelines::Made* pipeline = nullptr;
  VkPipelineLayout layout = VK_NULL_HANDLE;
  VkDescriptorSet set = VK_NULL_HANDLE;    // its buffers,
  std::vector<VkDeviceAddress> addresses;  // or their addresses
  PushConstants push;
  std::array<uint32_t, 3> groups{1, 1, 1};
  // Groups are read from `counts` where they are given.
  void record(VkCommandBuffer commands, Pipelines& pipelines, const Range* counts = nullptr) const;
};

// The descriptor sets of some kernels: one for all that are bound to the same.
class Sets {
 public:
  // Makes those of all ranges that bind() will be given.
  void make(const Context& context, Pipelines& pipelines, std::span<const Ranges* const> all);
  // Begins to make the pipeline.
  void bind(const Context& context, Pipelines& pipelines, const PipelineKey& key,
            const Ranges& ranges, BoundKernel& kernel) const;

 private:
  Handle<VkDescriptorPool> pool_;
  std::map<Ranges, VkDescriptorSet> sets_;
};

}  // namespace split::vulkan
