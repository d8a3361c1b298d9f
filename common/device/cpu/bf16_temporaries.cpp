#include "device/cpu/bf16_temporaries.h"

#include <algorithm>

namespace split {

namespace {
using Matmul = inputs::matmul;
}

bool reads_floats(const Step& step, int slot) {
  const auto named = [&](const Tape& tape) {
    return std::ranges::any_of(tape.operands, [&](const Operand& operand) {
      return operand.slot == slot || operand.access.index == slot;
    });
  };
  if (named(step.tape) || named(step.prologue)) return true;
  for (size_t in = 0; in < step.inputs.size(); ++in) {
    const bool rows = step.op == Op::k_matmul && in == Matmul::x;
    if (step.in(in) == slot && !rows) return true;
  }
  return false;
}

namespace {

std::vector<int> written(const Step& step) {
  std::vector<int> slots;
  for (const Operand& output : step.outputs) slots.push_back(output.slot);
  for (const TapeOutput& output : step.tape.outputs) slots.push_back(output.slot);
  return slots;
}

}  // namespace

std::vector<RoundedSlot> rounded_slots(const Program& program,
                                       const std::function<bool(const Slot&)>& rounds) {
  const auto slot_of = [&](int slot) -> const Slot& {
    return program.slots[static_cast<size_t>(slot)];
  };
  // Whole steps at a time.
  const auto writes_steps = [&](const Step& step) {
    if (step.op == Op::k_matmul) return rounds(slot_of(step.in(Matmul::w)));
    return step.op == Op::k_group ||
           (step.op == Op::k_attention &&
            step.columns / step.attribute<int64_t>(attributes::attention::heads) %
                    static_cast<int64_t>(kBlock) ==
                0);
  };
  std::vector<RoundedSlot> result(program.slots.size());
  std::vector<int> writers(program.slots.size());
  for (const Step& step : program.steps) {
    for (const int slot : written(step)) ++writers[static_cast<size_t>(slot)];
  }
  size_t last_read[kRoundedBuffers] = {};  // steps up to this one use the buffer
  int next = 0;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& writer = program.steps[i];
    for (const int slot : written(writer)) {
      const Slot& what = slot_of(slot);
      if (what.kind != SlotKind::kTemp || what.dims.back() < 2 || !writes_steps(writer) ||
          writers[static_cast<size_t>(slot)] > 1) {
        continue;
      }
      RoundedSlot found{-1, next % kRoundedBuffers, writer.rows};
      size_t last = 0;
      bool all = true;
      for (size_t j = 0; j < program.steps.size(); ++j) {
        const Step& step = program.steps[j];
        if (reads_floats(step, slot)) all = false;
        if (step.op != Op::k_matmul || step.in(Matmul::x) != slot) continue;
        all =
            all && j > i && step.rows == writer.rows && rounds(slot_of(step.in(Matmul::w))) &&
            (found.matrix < 0 || slot_of(step.in(Matmul::w)).dtype == slot_of(found.matrix).dtype);
        found.matrix = step.in(Matmul::w);
        last = j;
      }
      const bool taken = next >= kRoundedBuffers && last_read[found.buffer] >= i;
      if (!all || found.matrix < 0 || taken) continue;
      last_read[found.buffer] = last;
      result[static_cast<size_t>(slot)] = found;
      ++next;
    }
  }
  return result;
}

}  // namespace split
