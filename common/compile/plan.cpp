// Lifetimes to offsets: first fit, in the order in which the temporaries are made.
#include <algorithm>
#include <functional>

#include "compile/compile.h"

namespace split {
namespace {

void for_each_slot(const Tape& tape, const std::function<void(int)>& visit) {
  for (const Operand& operand : tape.operands) {
    if (operand.slot >= 0) visit(operand.slot);
    if (operand.access.index >= 0) visit(operand.access.index);
  }
  for (const TapeOutput& output : tape.outputs) {
    if (output.slot >= 0) visit(output.slot);
  }
}

void for_each_slot(const Step& step, const std::function<void(int)>& visit) {
  for_each_slot(step.tape, visit);
  for_each_slot(step.prologue, visit);
  for (const std::vector<Operand>* operands : {&step.inputs, &step.outputs}) {
    for (const Operand& operand : *operands) {
      if (operand.slot >= 0) visit(operand.slot);
    }
  }
}

struct Life {
  int slot = -1;
  size_t first = 0, last = 0;  // steps
  size_t size = 0;             // bytes a row
};

}  // namespace

void plan_arena(Program& program, size_t alignment) {
  std::vector<Life> lives;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    for_each_slot(program.steps[i], [&](int slot) {
      const Slot& s = program.slots[static_cast<size_t>(slot)];
      if (s.kind != SlotKind::kTemp) return;
      const auto at = std::find_if(lives.begin(), lives.end(),
                                   [&](const Life& life) { return life.slot == slot; });
      if (at != lives.end()) {
        at->last = i;
        return;
      }
      const size_t bytes = static_cast<size_t>(s.dims[1]) * dtype_size(s.dtype);
      lives.push_back({slot, i, i, (bytes + alignment - 1) / alignment * alignment});
    });
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
