// Lifetimes to offsets, in the order in which the temporaries are made. The times also decide which
// steps wait.
#include <algorithm>
#include <set>

#include "compile/arena.h"
#include "compile/compile.h"

namespace split {
namespace {

// When each step runs, which decides where it waits. Independent steps share a time, and so do a
// step and the readers that may compute it: its inputs are read while their results are written.
std::vector<size_t> set_times(Program& program) {
  std::vector<size_t> times;
  size_t now = 0;
  std::set<int> made;  // results at the present time
  bool joined = true;  // the step before may be done by this one; the first step waits too
  std::set<size_t> twins;
  for (const Step& step : program.steps) {
    if (step.twin) twins.insert(*step.twin);
  }
  for (Step& step : program.steps) {
    const std::vector<int> read = slots_read(step);
    const bool follows = std::ranges::any_of(read, [&](int slot) { return made.contains(slot); });
    if (follows) {
      ++now;
      made.clear();
    }
    step.waits = follows || joined;
    joined = (step.op == Op::k_group && step.joins > 0) || twins.contains(times.size());
    times.push_back(now);
    if (joined) continue;
    for (const int slot : results(step)) made.insert(slot);
  }
  return times;
}

}  // namespace

void plan_arena(Program& program, size_t alignment) {
  const std::vector<size_t> times = set_times(program);
  std::vector<size_t> written = times;  // initially
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (const size_t sibling : program.steps[i].siblings) written[sibling] = times[i];
    if (const auto rotation = program.steps[i].rotation) written[*rotation] = written[i];
  }
  std::vector<Life> lives;
  std::vector<int> slots;  // one for each
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (const int slot : results(program.steps[i])) {
      const Slot& s = program.slots[static_cast<size_t>(slot)];
      if (s.kind != SlotKind::kTemp) continue;
      size_t last = times[i];
      for (const Reader& reader : readers(program, slot)) {
        const Step& by = program.steps[reader.step];
        const size_t end = reader.step + (by.op == Op::k_group ? by.joins : 0);
        last = std::max(last, times[end]);
      }
      const size_t bytes = static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype);
      lives.push_back({written[i], last, (bytes + alignment - 1) / alignment * alignment});
      slots.push_back(slot);
    }
  }
  program.arena_row_bytes = place(lives);
  for (size_t i = 0; i < lives.size(); ++i) {
    program.slots[static_cast<size_t>(slots[i])].offset = lives[i].at;
  }
}

}  // namespace split
