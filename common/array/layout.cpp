#include "array/layout.h"

#include <algorithm>
#include <map>

namespace split::array {

size_t whole_lines(size_t floats) { return (floats + kLine - 1) / kLine * kLine; }

namespace {

// Room in the arena: the smallest gap that fits, gaps joined as they are given back.
class Arena {
 public:
  size_t take(size_t floats) {
    floats = std::max<size_t>(whole_lines(floats), kLine);
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second >= floats && (best == gaps_.end() || gap->second < best->second)) best = gap;
    }
    if (best == gaps_.end()) {
      // A gap at the end grows.
      size_t at = size_;
      if (!gaps_.empty() &&
          std::prev(gaps_.end())->first + std::prev(gaps_.end())->second == size_) {
        at = std::prev(gaps_.end())->first;
        gaps_.erase(std::prev(gaps_.end()));
      }
      size_ = at + floats;
      return at;
    }
    const auto [at, size] = *best;
    gaps_.erase(best);
    if (size > floats) gaps_.emplace(at + floats, size - floats);
    return at;
  }
  void give(size_t at, size_t floats) {
    floats = std::max<size_t>(whole_lines(floats), kLine);
    auto gap = gaps_.emplace(at, floats).first;
    if (const auto next = std::next(gap); next != gaps_.end() && at + floats == next->first) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap != gaps_.begin()) {
      const auto before = std::prev(gap);
      if (before->first + before->second == at) {
        before->second += gap->second;
        gaps_.erase(gap);
      }
    }
  }
  size_t size() const { return size_; }

 private:
  std::map<size_t, size_t> gaps_;
  size_t size_ = 0;
};

}  // namespace

Layout::Layout(const Schedule& schedule, const Workspace& workspace)
    : at(schedule.buffers.size()),
      placed(schedule.buffers.size()),
      workspaces(schedule.kernels.size()) {
  const size_t kernels = schedule.kernels.size();
  std::vector<size_t> last(at.size(), 0);
  for (size_t i = 0; i < kernels; ++i) {
    schedule.kernels[i].each_operand([&](const Operand& operand) {
      if (operand.buffer >= 0) last[static_cast<size_t>(operand.buffer)] = i;
    });
    for (const auto& output : schedule.kernels[i].outputs) {
      auto& end = last[static_cast<size_t>(output.buffer)];
      end = std::max(end, i);
    }
  }
  for (const auto& output : schedule.outputs) last[static_cast<size_t>(output.buffer)] = kernels;
  for (const auto& copy : schedule.copies) last[static_cast<size_t>(copy.first)] = kernels;
  std::vector<std::vector<size_t>> ends(kernels + 1);
  for (size_t b = 0; b < at.size(); ++b) ends[last[b]].push_back(b);
  const auto size = [&](size_t b) { return schedule.buffers[b].words(); };
  Arena arena;
  for (size_t i = 0; i < kernels; ++i) {
    const Kernel& kernel = schedule.kernels[i];
    for (const auto& output : kernel.outputs) {
      const auto b = static_cast<size_t>(output.buffer);
      if (schedule.buffers[b].leaf() || placed[b]) continue;
      at[b] = arena.take(size(b));
      placed[b] = true;
    }
    if (const size_t own = workspace(kernel); own > 0) {
      workspaces[i] = arena.take(own);
      arena.give(workspaces[i], own);
    }
    for (const size_t b : ends[i]) {
      if (placed[b]) arena.give(at[b], size(b));
    }
  }
  floats = arena.size();
}

}  // namespace split::array
