// The replay of an Executable: commands, counts, times.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/log.h"
#include "device/vulkan/program/dispatches.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

// With more keys the splits of one row are joined by attention's own last workgroup, not by each
// workgroup of the product behind it, with the same bits. On an H200 a token of Llama-3.2-1B takes
// 0.93 of the time so at 4,095 keys, and 1.02 at 300.
constexpr uint32_t kManyKeys = 1280;

}  // namespace

void VulkanExecutable::make_stamps() {
  if (debug_level() < 2 && layouts_ == 0) return;
  if (core_->context.capabilities().timestamp_bits == 0) return;
  VkQueryPoolCreateInfo info{};
  info.sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  info.queryType = VK_QUERY_TYPE_TIMESTAMP;
  for (const auto& variant : commands_)
    info.queryCount += static_cast<uint32_t>(variant.size()) + 1;
  VkQueryPool pool = VK_NULL_HANDLE;
  check(vkCreateQueryPool(core_->context.device(), &info, nullptr, &pool), "vkCreateQueryPool");
  stamps_ = {core_->context.device(), pool, vkDestroyQueryPool};
}

uint32_t VulkanExecutable::first_stamp(size_t variant) const {
  size_t first = 0;
  for (size_t i = 0; i < variant; ++i) first += commands_[i].size() + 1;
  return static_cast<uint32_t>(first);
}

std::vector<double> VulkanExecutable::command_us() const {
  const size_t count = commands_[last_].size();
  if (stamps_.get() == VK_NULL_HANDLE || count == 0) return {};
  std::vector<uint64_t> ticks(count + 1);
  check(vkGetQueryPoolResults(core_->context.device(), stamps_.get(), first_stamp(last_),
                              static_cast<uint32_t>(ticks.size()), ticks.size() * sizeof(uint64_t),
                              ticks.data(), sizeof(uint64_t), VK_QUERY_RESULT_64_BIT),
        "vkGetQueryPoolResults");
  const Capabilities& device = core_->context.capabilities();
  std::vector<double> us;
  for (size_t i = 0; i < count; ++i) {
    us.push_back(static_cast<double>(ticks[i + 1] - ticks[i]) *
                 static_cast<double>(device.properties.limits.timestampPeriod) / 1e3);
  }
  return us;
}

std::string VulkanExecutable::times() const {
  const std::vector<double> us = command_us();
  if (us.empty()) return "";
  std::string line = cat("times of '", program_.name, "', variant ", last_, ", us:");
  for (size_t i = 0; i < us.size(); ++i) {
    line += cat(" ", commands_[last_][i].what, " ", std::floor(10 * us[i]) / 10);
  }
  return line;
}

void VulkanExecutable::report(Tuner& tuner) const {
  const std::vector<double> us = command_us();
  std::map<std::pair<MatmulQuestion, MatmulShape>, double> sums;  // a matrix may be in pieces
  for (size_t i = 0; i < us.size(); ++i) {
    if (const auto& question = commands_[last_][i].question) sums[*question] += us[i];
  }
  for (const auto& [what, sum] : sums) tuner.took(what.first, what.second, sum);
}

void VulkanExecutable::record(VkCommandBuffer commands, size_t variant, size_t i,
                              bool first) const {
  const Command& command = commands_[variant][i];
  const uint32_t stamp = first_stamp(variant) + static_cast<uint32_t>(i);
  if (stamps_.get() != VK_NULL_HANDLE && i == 0) {
    vkCmdResetQueryPool(commands, stamps_.get(), stamp,
                        static_cast<uint32_t>(commands_[variant].size()) + 1);
    vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stamps_.get(), stamp);
  }
  if (command.waits || first) {
    barrier(commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, VK_ACCESS_SHADER_WRITE_BIT,
            VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT);
  }
  Range counts;
  if (variant >= kWide) {
    counts = part(counts_[variant - kWide], i * sizeof(VkDispatchIndirectCommand), 0);
  }
  command.record(commands, core_->pipelines, variant >= kWide ? &counts : nullptr);
  if (stamps_.get() != VK_NULL_HANDLE) {
    vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, stamps_.get(), stamp + 1);
  }
}

size_t VulkanExecutable::prepare(const RowBatch& batch, size_t program) {
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
  const auto past = [&](std::span<const int32_t> values, StepInput symbol) {
    const int64_t limit = limits_[static_cast<size_t>(symbol)];
    return limit >= 0 && std::any_of(values.begin(), values.end(),
                                     [&](int32_t value) { return value < 0 || value >= limit; });
  };
  if (past(batch.tokens, StepInput::kTokens) || past(batch.positions, StepInput::kPositions) ||
      past(batch.marks, StepInput::kMarks)) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name,
                                        "': a token, position or mark past its table"));
  }
  write_state_slots(batch, program);
  const uint32_t rows = uses_out_rows_ && !uses_rows_ ? out_rows : batch.rows;
  last_ = kWide;
  if (!halves_.empty() && (batch.phase == Phase::kPrompt || workspace_.limits().wide)) {
    const bool prompt = batch.phase == Phase::kPrompt;
    last_ = prompt ? kPromptCoopMatrix : rows <= kFewRows ? kFewCoopMatrix : kDecodeCoopMatrix;
    for (size_t i = kShortPrompts.size(); i-- > 0 && prompt;) {
      if (rows <= kShortPrompts[i]) last_ = kShortCoopMatrix + i;
    }
  } else if (!(uses_rows_ && uses_out_rows_)) {
    for (size_t variant = kWide; variant-- > 0;) {
      if (rows > 0 && rows <= kNarrowRows[variant]) last_ = variant;
    }
  }
  const uint32_t end =
      batch.seen.empty() ? 1 : std::ranges::max(batch.seen, {}, &KeyRange::end).end;
  if (last_ == kOneRow && end > kManyKeys) last_ = kLongRow;
  if (last_ < kWide) return last_;
  const std::vector<Command>& wide = commands_[last_];
  for (size_t i = 0; i < wide.size(); ++i) {
    const uint32_t all = wide[i].out_rows ? out_rows : batch.rows;
    const PushConstants& push = wide[i].push;
    const uint32_t here = all > push.row_base ? std::min(all - push.row_base, push.row_piece) : 0;
    std::array<uint32_t, 3> groups = wide[i].groups;
    groups[wide[i].row_axis] =
        wide[i].runs ? workspace_.runs() : ceil_div(here, wide[i].rows_per_group);
    if (wide[i].part_keys > 0) groups[1] = ceil_div(end, wide[i].part_keys);
    const VkDispatchIndirectCommand command{groups[0], groups[1], groups[2]};
    std::memcpy(counts_[last_ - kWide].mapped() + i * sizeof command, &command, sizeof command);
  }
  return last_;
}

}  // namespace split::vulkan
