#include "device/vulkan/program/commands.h"

namespace split::vulkan {

void BoundKernel::record(VkCommandBuffer commands, Pipelines& pipelines,
                         const Range* counts) const {
  vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines.get(*pipeline));
  if (set != VK_NULL_HANDLE) {
    vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0,
                            nullptr);
  } else {
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, sizeof push,
                       static_cast<uint32_t>(addresses.size() * sizeof(VkDeviceAddress)),
                       addresses.data());
  }
  vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof push, &push);
  if (counts != nullptr) {
    vkCmdDispatchIndirect(commands, counts->buffer, counts->offset);
  } else {
    vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
  }
}

void Sets::make(const Context& context, Pipelines& pipelines, std::span<const Ranges* const> all) {
  VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, 0};
  for (const Ranges* ranges : all) {
    const auto count = static_cast<uint32_t>(ranges->size());
    if (pipelines.by_address(count)) continue;
    if (sets_.try_emplace(*ranges, VkDescriptorSet{}).second) size.descriptorCount += count;
  }
  if (sets_.empty()) return;
  VkDescriptorPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  info.maxSets = static_cast<uint32_t>(sets_.size());
  info.poolSizeCount = 1;
  info.pPoolSizes = &size;
  VkDescriptorPool pool = VK_NULL_HANDLE;
  check(vkCreateDescriptorPool(context.device(), &info, nullptr, &pool), "vkCreateDescriptorPool");
  pool_ = {context.device(), pool, vkDestroyDescriptorPool};
  for (auto& [ranges, set] : sets_) {
    const VkDescriptorSetLayout layout = pipelines.set_layout(static_cast<uint32_t>(ranges.size()));
    VkDescriptorSetAllocateInfo allocate{};
    allocate.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
    allocate.descriptorPool = pool;
    allocate.descriptorSetCount = 1;
    allocate.pSetLayouts = &layout;
    check(vkAllocateDescriptorSets(context.device(), &allocate, &set), "vkAllocateDescriptorSets");
    std::vector<VkDescriptorBufferInfo> infos;
    for (const Range& range : ranges) infos.push_back({range.buffer, range.offset, range.bytes});
    VkWriteDescriptorSet write{};
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = set;
    write.descriptorCount = static_cast<uint32_t>(infos.size());
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = infos.data();
    vkUpdateDescriptorSets(context.device(), 1, &write, 0, nullptr);
  }
}

void Sets::bind(const Context& context, Pipelines& pipelines, const PipelineKey& key,
                const Ranges& ranges, BoundKernel& kernel) const {
  kernel.pipeline = pipelines.begin(key);
  kernel.layout = pipelines.layout(key.bindings);
  if (!pipelines.by_address(key.bindings)) {
    kernel.set = sets_.at(ranges);
    return;
  }
  for (const Range& range : ranges) {
    VkBufferDeviceAddressInfo info{};
    info.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO;
    info.buffer = range.buffer;
    kernel.addresses.push_back(vkGetBufferDeviceAddress(context.device(), &info) + range.offset);
  }
}

}  // namespace split::vulkan
