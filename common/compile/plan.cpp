// Lifetimes to offsets: first fit, in the order in which the temporaries are made.
#include <algorithm>

#include "compile/compile.h"

namespace split {
namespace {

// When each step runs. A group that its reader may make is read while that one's results are
// written: the two are at one time.
std::vector<size_t> times_of(const Program& program) {
  std::vector<size_t> times;
  size_t now = 0;
  for (const Step& step : program.steps) {
    times.push_back(now);
    if (step.op != Op::k_group || !step.joins_next) ++now;
  }
  return times;
}

struct Life {
  int slot = -1;
  size_t first = 0, last = 0;  // times
  size_t size = 0;             // bytes a row
};

}  // namespace

void plan_arena(Program& program, size_t alignment) {
  const std::vector<size_t> times = times_of(program);
  std::vector<Life> lives;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for (const int slot : results(program.steps[i])) {
      const Slot& s = program.slots[static_cast<size_t>(slot)];
      if (s.kind != SlotKind::kTemp) continue;
      size_t last = times[i];
      for (const Reader& reader : readers(program, slot)) last = std::max(last, times[reader.step]);
      const size_t bytes = static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype);
      lives.push_back({slot, times[i], last, (bytes + alignment - 1) / alignment * alignment});
    }
  }
  program.arena_row_bytes = 0;
  std::vector<Life> placed;
  for (const Life& life : lives) {
    size_t offset = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const Life& other : placed) {
        const size_t start = program.slots[static_cast<size_t>(other.slot)].offset;
        const bool together = life.first <= other.last && other.first <= life.last;
        if (together && offset < start + other.size && start < offset + life.size) {
          offset = start + other.size;
          moved = true;
        }
      }
    }
    program.slots[static_cast<size_t>(life.slot)].offset = offset;
    program.arena_row_bytes = std::max(program.arena_row_bytes, offset + life.size);
    placed.push_back(life);
  }
}

}  // namespace split
