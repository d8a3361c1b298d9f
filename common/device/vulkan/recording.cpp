// The second half of loading an Executable, and its replay: descriptor sets, command buffers,
// counts.
#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "device/vulkan/executable.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

// Multiply-adds of the commands between two places where a step can be cut; one matrix of GPT-2 XL
// at 256 rows has 2.6e9, so that a device of 52 GFLOP/s needs 100 ms for it.
constexpr uint64_t kSegmentProducts = 500'000'000;

uint32_t ceil_div(uint64_t a, uint64_t b) { return static_cast<uint32_t>((a + b - 1) / b); }

}  // namespace

void VulkanExecutable::make_sets(const std::vector<std::vector<Dispatch>>& all) {
  const VkDevice device = core_->context.device();
  uint32_t buffers = 0;
  for (const auto& variant : all) {
    for (const Dispatch& dispatch : variant) {
      const auto layout = core_->pipelines.set_layout(dispatch.pipeline.bindings);
      if (sets_.try_emplace({layout, dispatch.ranges}, VkDescriptorSet{}).second) {
        buffers += dispatch.pipeline.bindings;
      }
    }
  }
  if (sets_.empty()) return;
  const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, buffers};
  VkDescriptorPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  info.maxSets = static_cast<uint32_t>(sets_.size());
  info.poolSizeCount = 1;
  info.pPoolSizes = &size;
  VkDescriptorPool pool = VK_NULL_HANDLE;
  check(vkCreateDescriptorPool(device, &info, nullptr, &pool), "vkCreateDescriptorPool");
  descriptor_pool_ = {device, pool, vkDestroyDescriptorPool};
  for (auto& [what, set] : sets_) {
    VkDescriptorSetAllocateInfo allocate{};
    allocate.sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
    allocate.descriptorPool = pool;
    allocate.descriptorSetCount = 1;
    allocate.pSetLayouts = &what.first;
    check(vkAllocateDescriptorSets(device, &allocate, &set), "vkAllocateDescriptorSets");
    std::vector<VkDescriptorBufferInfo> infos;
    for (const Range& range : what.second) {
      infos.push_back({range.buffer, range.offset, range.bytes});
    }
    VkWriteDescriptorSet write{};
    write.sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
    write.dstSet = set;
    write.descriptorCount = static_cast<uint32_t>(infos.size());
    write.descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
    write.pBufferInfo = infos.data();
    vkUpdateDescriptorSets(device, 1, &write, 0, nullptr);
  }
}

void VulkanExecutable::make_stamps(const std::vector<std::vector<Dispatch>>& all) {
  if (debug_level() < 2 || core_->context.capabilities().timestamp_bits == 0) return;
  VkQueryPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  for (const auto& variant : all) info.queryCount += static_cast<uint32_t>(variant.size()) + 1;
  VkQueryPool pool = VK_NULL_HANDLE;
  check(vkCreateQueryPool(core_->context.device(), &info, nullptr, &pool), "vkCreateQueryPool");
  stamps_ = {core_->context.device(), pool, vkDestroyQueryPool};
  for (size_t variant = 0; variant <= kWide; ++variant) {
    for (const Dispatch& dispatch : all[variant]) stamped_[variant].push_back(dispatch.what);
  }
}

uint32_t VulkanExecutable::first_stamp(size_t variant) const {
  size_t first = 0;
  for (size_t i = 0; i < variant; ++i) first += stamped_[i].size() + 1;
  return static_cast<uint32_t>(first);
}

std::string VulkanExecutable::times() const {
  const std::vector<std::string>& what = stamped_[last_];
  if (stamps_.get() == VK_NULL_HANDLE || what.empty()) return "";
  std::vector<uint64_t> ticks(what.size() + 1);
  check(vkGetQueryPoolResults(core_->context.device(), stamps_.get(), first_stamp(last_),
                              static_cast<uint32_t>(ticks.size()), ticks.size() * sizeof(uint64_t),
                              ticks.data(), sizeof(uint64_t), VK_QUERY_RESULT_64_BIT),
        "vkGetQueryPoolResults");
  const auto us = [&](uint64_t from, uint64_t to) {
    const float period = core_->context.capabilities().properties.limits.timestampPeriod;
    return static_cast<uint64_t>(static_cast<float>(to - from) * period / 100.0f) / 10.0;
  };
  std::string line = cat("times of '", program_.name, "', us:");
  for (size_t i = 0; i < what.size(); ++i)
    line += cat(" ", what[i], " ", us(ticks[i], ticks[i + 1]));
  return line;
}

void VulkanExecutable::record(size_t variant, const std::vector<Dispatch>& all) {
  // Commands of many rows come in pieces that a step can be cut at.
  const uint64_t most = variant == kWide ? kSegmentProducts / workspace_.capacity() : ~uint64_t{0};
  std::vector<Recorded>& recorded = recorded_[variant];
  for (size_t i = 0; i < all.size(); ++i) {
    const Dispatch& dispatch = all[i];
    const bool starts = i == 0 || (dispatch.waits && recorded.back().weights > 0 &&
                                   recorded.back().weights + dispatch.weights > most);
    if (starts) {
      if (i > 0) check(vkEndCommandBuffer(recorded.back().commands), "vkEndCommandBuffer");
      recorded.push_back({core_->context.command_buffer(), 0});
      VkCommandBufferBeginInfo begin{};
      begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
      begin.flags = VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT;
      check(vkBeginCommandBuffer(recorded.back().commands, &begin), "vkBeginCommandBuffer");
    }
    const VkCommandBuffer commands = recorded.back().commands;
    const uint32_t stamp = first_stamp(variant) + static_cast<uint32_t>(i);
    if (stamps_.get() != VK_NULL_HANDLE && i == 0) {
      vkCmdResetQueryPool(commands, stamps_.get(), stamp, static_cast<uint32_t>(all.size()) + 1);
      vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stamps_.get(), stamp);
    }
    recorded.back().weights += dispatch.weights;
    if (dispatch.waits || starts) {
      VkMemoryBarrier barrier{};
      barrier.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
      barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT;
      barrier.dstAccessMask = VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT;
      vkCmdPipelineBarrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
                           VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, 0, 1, &barrier, 0, nullptr, 0,
                           nullptr);
    }
    const VkPipelineLayout layout = core_->pipelines.layout(dispatch.pipeline.bindings);
    const VkDescriptorSet set =
        sets_.at({core_->pipelines.set_layout(dispatch.pipeline.bindings), dispatch.ranges});
    vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                      core_->pipelines.get(dispatch.pipeline));
    vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout, 0, 1, &set, 0,
                            nullptr);
    vkCmdPushConstants(commands, layout, VK_SHADER_STAGE_COMPUTE_BIT, 0, sizeof dispatch.push,
                       &dispatch.push);
    if (variant == kWide) {
      vkCmdDispatchIndirect(commands, counts_.buffer(), i * sizeof(VkDispatchIndirectCommand));
    } else {
      vkCmdDispatch(commands, dispatch.groups[0], dispatch.groups[1], dispatch.groups[2]);
    }
    if (stamps_.get() != VK_NULL_HANDLE) {
      vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stamps_.get(), stamp + 1);
    }
  }
  if (!recorded.empty()) {
    check(vkEndCommandBuffer(recorded.back().commands), "vkEndCommandBuffer");
  }
}

void VulkanExecutable::commands(const RowBatch& batch, std::vector<Segment>& out) {
  const auto out_rows = static_cast<uint32_t>(batch.out_rows.size());
  const auto rows_of = [&](const Slot& s) { return s.dims[0] == kOutRows ? out_rows : batch.rows; };
  for (size_t i = 0; i < buffers_.size(); ++i) {
    const Slot& s = program_.slots[i];
    if (buffers_[i] == nullptr || s.dims.size() != 2 || s.dims[0] >= 0) continue;
    const size_t row_bytes = static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype);
    if (buffers_[i]->size() / row_bytes < rows_of(s)) {
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] slot '", s.name, "': ", rows_of(s), " rows of ", row_bytes,
                      " bytes in a buffer of ", buffers_[i]->size()));
    }
  }
  const auto past = [&](std::span<const int32_t> values, int64_t limit) {
    return limit >= 0 && std::any_of(values.begin(), values.end(),
                                     [&](int32_t value) { return value < 0 || value >= limit; });
  };
  if (past(batch.tokens, token_limit_) || past(batch.positions, position_limit_)) {
    throw Error(ErrorKind::kDevice,
                cat("[vulkan] program '", program_.name, "': a token or position past its table"));
  }
  const uint32_t rows = uses_out_rows_ && !uses_rows_ ? out_rows : batch.rows;
  if (!(uses_rows_ && uses_out_rows_)) {
    for (size_t variant = 0; variant < kWide; ++variant) {
      if (rows == 0 || rows > kNarrowRows[variant]) continue;
      last_ = variant;
      for (const Recorded& part : recorded_[variant])
        out.push_back({part.commands, {part.weights, 0}});
      return;
    }
  }
  for (size_t i = 0; i < wide_.size(); ++i) {
    const Dispatch& dispatch = wide_[i];
    const uint32_t all = dispatch.out_rows ? out_rows : batch.rows;
    const uint32_t here = all > dispatch.push.row_base
                              ? std::min(all - dispatch.push.row_base, dispatch.push.row_piece)
                              : 0;
    std::array<uint32_t, 3> groups = dispatch.groups;
    groups[dispatch.row_axis] = ceil_div(here, dispatch.rows_per_group);
    const VkDispatchIndirectCommand command{groups[0], groups[1], groups[2]};
    std::memcpy(counts_.mapped() + i * sizeof command, &command, sizeof command);
  }
  last_ = kWide;
  for (const Recorded& part : recorded_[kWide]) {
    out.push_back({part.commands, {0, part.weights * rows}});
  }
}

}  // namespace split::vulkan
