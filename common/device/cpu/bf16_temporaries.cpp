#include "device/cpu/bf16_temporaries.h"

#include <algorithm>

namespace split {

std::vector<RoundedSlot> bf16_temporaries(const Program& program,
                                          const std::function<bool(const Slot&)>& rounds) {
  const auto slot_of = [&](int slot) -> const Slot& {
    return program.slots[static_cast<size_t>(slot)];
  };
  // Whether a step writes whole steps of its result at a time.
  const auto writes_steps = [&](const Step& step) {
    if (step.op == Op::k_matmul) return rounds(slot_of(step.in(inputs::matmul::w)));
    return step.op == Op::k_group || (step.op == Op::k_attention && Heads(step).dim % kBlock == 0);
  };
  std::vector<RoundedSlot> result(program.slots.size());
  size_t last_read[kRoundedBuffers] = {};  // steps up to this one use the buffer
  int next = 0;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& writer = program.steps[i];
    for (const int slot : results(writer)) {
      const Slot& what = slot_of(slot);
      if (what.kind != SlotKind::kTemp || what.dims.back() < 2 || !writes_steps(writer)) continue;
      const std::vector<Reader> reading = readers(program, slot);
      const auto matrix_of = [&](const Reader& reader) {
        return program.steps[reader.step].in(inputs::matmul::w);
      };
      const bool all = std::ranges::all_of(reading, [&](const Reader& reader) {
        const Step& step = program.steps[reader.step];
        return step.op == Op::k_matmul && reader.input == inputs::matmul::x &&
               step.rows == writer.rows && rounds(slot_of(matrix_of(reader))) &&
               slot_of(matrix_of(reader)).dtype == slot_of(matrix_of(reading[0])).dtype;
      });
      if (!all || reading.empty()) continue;
      const RoundedSlot found{matrix_of(reading[0]), next % kRoundedBuffers, writer.rows};
      if (next >= kRoundedBuffers && last_read[found.buffer] >= i) continue;
      last_read[found.buffer] = reading.back().step;
      result[static_cast<size_t>(slot)] = found;
      ++next;
    }
  }
  return result;
}

}  // namespace split
