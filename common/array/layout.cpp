#include "array/layout.h"

#include <algorithm>

#include "compile/arena.h"

namespace split::array {

size_t whole_lines(size_t floats) { return (floats + kLine - 1) / kLine * kLine; }

Layout::Layout(const Schedule& schedule, const Workspace& workspace)
    : at(schedule.buffers.size()),
      placed(schedule.buffers.size()),
      workspaces(schedule.kernels.size()) {
  std::vector<Life> lives;
  std::vector<size_t*> places;  // where each one's is told, at first its index
  const auto begin = [&](size_t& told, size_t kernel, size_t floats) {
    told = lives.size();
    lives.push_back({kernel, kernel, std::max(whole_lines(floats), kLine)});
    places.push_back(&told);
  };
  const auto live = [&](int buffer, size_t kernel) {
    if (buffer < 0 || !placed[static_cast<size_t>(buffer)]) return false;
    lives[at[static_cast<size_t>(buffer)]].last = kernel;
    return true;
  };
  const size_t kernels = schedule.kernels.size();
  for (size_t i = 0; i < kernels; ++i) {
    const Kernel& kernel = schedule.kernels[i];
    kernel.each_operand([&](const Operand& operand) { live(operand.buffer, i); });
    for (const auto& output : kernel.tape.outputs) {
      const auto b = static_cast<size_t>(output.slot);
      if (schedule.buffers[b].leaf() || live(output.slot, i)) continue;
      begin(at[b], i, schedule.buffers[b].words());
      placed[b] = true;
    }
    if (const size_t own = workspace(kernel); own > 0) begin(workspaces[i], i, own);
  }
  for (const auto& output : schedule.outputs) live(output.buffer, kernels);
  for (const auto& copy : schedule.copies) live(copy.first, kernels);
  floats = place(lives);
  for (size_t i = 0; i < lives.size(); ++i) *places[i] = lives[i].at;
}

}  // namespace split::array
