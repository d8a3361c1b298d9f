#include "device/vulkan/program/recording.h"

#include <algorithm>

namespace split::vulkan {
namespace {

// The most work of a command buffer, so that a device that reads 2 GB/s of half weights, or
// computes 20 GFLOP/s, has it done within kSubmissionMs. A matrix is not cut: one of GPT-2 XL at
// 256 rows has 2.6e9 multiply-adds, for which a device of 52 GFLOP/s needs 100 ms.
constexpr uint64_t kPartWeights = 50'000'000;
constexpr uint64_t kPartProducts = 500'000'000;
constexpr size_t kMaxRecordings = 64;  // a sequence takes 0.1 ms to record again

// The work of a command over many rows: tiles are computed whole, and a product by matrix units
// is counted as an eighth, which is about what it takes beside one without. One pace serves all.
Cost wide_cost(const VulkanExecutable::Command& command, uint64_t rows) {
  constexpr uint64_t kUnitsGain = 8;
  const uint64_t tile = command.rows_per_group, all = (rows + tile - 1) / tile * tile;
  return {0, command.weights * all / (command.units ? kUnitsGain : 1)};
}

}  // namespace

bool Recordings::get(const std::vector<VulkanExecutable*>& programs, const RowBatch& batch,
                     const CopyOut& copy, std::vector<Segment>& out) {
  Key key;
  Cost all;
  bool narrow = !programs.empty();
  for (size_t i = 0; i < programs.size(); ++i) {
    VulkanExecutable* const program = programs[i];
    const size_t variant = program->prepare(batch, i);
    key.programs.emplace_back(program->id(), variant);
    narrow = narrow && variant < kWide;
    const uint64_t rows = program->rows(batch);
    for (const VulkanExecutable::Command& command : program->commands(variant)) {
      all += variant < kWide ? Cost{command.weights, 0} : wide_cost(command, rows);
    }
  }
  key.whole = core_->queue.pace().estimate_ms(all) <= kSubmissionMs;
  if (narrow && key.whole) {
    key.copy = copy;
    key.timed = core_->queue.measures();
  }
  auto at = all_.find(key);
  if (at == all_.end()) {
    if (all_.size() >= kMaxRecordings) clear();
    at = all_.emplace(key, record(programs, key)).first;
  }
  for (const Part& part : at->second) {
    Segment segment{part.commands, {part.narrow, 0}, key.timed};
    for (const auto& [program, i] : part.wide) {
      const VulkanExecutable& executable = *programs[program];
      segment.cost +=
          wide_cost(executable.commands(key.programs[program].second)[i], executable.rows(batch));
    }
    out.push_back(segment);
  }
  return key.copy.has_value();
}

std::vector<Recordings::Part> Recordings::record(const std::vector<VulkanExecutable*>& programs,
                                                 const Key& key) {
  std::vector<Part> parts;
  uint64_t share = 0;  // part of a command buffer's limit, in 1/2^32
  for (size_t p = 0; p < programs.size(); ++p) {
    const size_t variant = key.programs[p].second;
    const std::vector<VulkanExecutable::Command>& commands = programs[p]->commands(variant);
    for (size_t i = 0; i < commands.size(); ++i) {
      const uint64_t more =
          variant < kWide
              ? (commands[i].weights << 16) / (kPartWeights >> 16)
              : (wide_cost(commands[i], programs[p]->most_rows(variant)).products << 16) /
                    (kPartProducts >> 16);
      const bool starts = parts.empty() || (!key.whole && commands[i].waits && share > 0 &&
                                            share + more > uint64_t{1} << 32);
      if (starts) {
        if (!parts.empty()) end(parts.back().commands);
        share = 0;
        parts.push_back({core_->context.command_buffer(), {}, 0});
        begin(parts.back().commands, VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT);
        if (key.timed) core_->queue.stamp(parts.back().commands, 0);
      }
      share += more;
      Part& part = parts.back();
      if (variant < kWide) {
        part.narrow += commands[i].weights;
      } else if (commands[i].weights > 0) {
        part.wide.emplace_back(p, i);
      }
      programs[p]->record(part.commands, variant, i, starts || i == 0);
    }
  }
  if (key.copy) key.copy->record(parts.back().commands);
  if (key.timed) core_->queue.stamp(parts.back().commands, 1);
  if (!parts.empty()) end(parts.back().commands);
  return parts;
}

void Recordings::clear() {
  for (const auto& [key, parts] : all_) {
    for (const Part& part : parts) {
      vkFreeCommandBuffers(core_->context.device(), core_->context.pool(), 1, &part.commands);
    }
  }
  all_.clear();
}

}  // namespace split::vulkan
