// What a step takes over from its neighbours, on a Program whose steps are there.
#include <algorithm>

#include "compile/fuse.h"

namespace split {
namespace {

// Rule 3.
void join_prologues(Program& program) {
  for (size_t i = 0; i + 1 < program.steps.size(); ++i) {
    Step& step = program.steps[i];
    const Step& next = program.steps[i + 1];
    const std::vector<int> made = results(step);
    if (made.size() != 1 || next.op != Op::k_matmul || step.rows != next.rows) continue;
    const Slot& slot = program.slots[static_cast<size_t>(made[0])];
    const std::vector<Reader> reading = readers(program, made[0]);
    size_t last = i;
    const bool in_place = std::ranges::all_of(reading, [&](const Reader& reader) {
      last = std::max(last, reader.step);
      return reader.input != Reader::kInTape && program.steps[reader.step].op == Op::k_matmul;
    });
    if (slot.kind != SlotKind::kTemp || !in_place) continue;
    const bool whole_rows = step.columns == next.inner && slot.dims[1] == next.inner;
    const bool groups = step.op == Op::k_group && reading.size() == last - i;
    const bool merges = step.op == Op::k_attention && reading.size() == 1 && last == i + 1;
    if (whole_rows && (groups || merges)) step.joins = last - i;
  }
}

// The step of this op that makes a temporary and nothing else, where step `reader` alone reads it.
std::optional<size_t> maker_for(const Program& program, size_t reader, int slot, Op op) {
  if (program.slots[static_cast<size_t>(slot)].kind != SlotKind::kTemp) return std::nullopt;
  for (const Reader& by : readers(program, slot)) {
    if (by.step != reader) return std::nullopt;
  }
  for (size_t i = 0; i < reader; ++i) {
    const Step& step = program.steps[i];
    if (step.op != op || results(step) != std::vector{slot}) continue;
    return step.rows == program.steps[reader].rows ? std::optional(i) : std::nullopt;
  }
  return std::nullopt;
}

// Rule 4.
void join_rotations(Program& program) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].op != Op::k_rotate) continue;
    const Turn turn(program.steps[i]);
    const bool whole_rows =
        turn.x.access.first == 0 &&
        program.slots[static_cast<size_t>(turn.x.slot)].dims[1] == program.steps[i].columns;
    const auto maker = maker_for(program, i, turn.x.slot, Op::k_matmul);
    if (whole_rows && maker) program.steps[*maker].rotation = i;
  }
}

// The steps that make the keys or values of attention i: a matmul, or a rotation and the matmul
// that may do it. Empty when something else reads them too.
std::vector<size_t> makers_of(const Program& program, size_t i, size_t input) {
  const Operand& operand = program.steps[i].inputs[input];
  if (const auto matmul = maker_for(program, i, operand.slot, Op::k_matmul)) return {*matmul};
  for (const Op op : {Op::k_rotate, Op::k_norm_rotate}) {
    const auto rotation = maker_for(program, i, operand.slot, op);
    if (!rotation || operand.access.first != 0) continue;
    std::vector<size_t> makers = {*rotation};
    for (size_t before = 0; before < *rotation; ++before) {
      if (program.steps[before].rotation == rotation) makers.push_back(before);
    }
    return makers;
  }
  return {};
}

// Rule 5.
void join_attention(Program& program) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].op != Op::k_attention) continue;
    const std::vector<size_t> keys = makers_of(program, i, inputs::attention::k),
                              values = makers_of(program, i, inputs::attention::v);
    if (keys.empty() || values.empty()) continue;
    for (const auto& makers : {keys, values}) {
      for (const size_t maker : makers) program.steps[maker].attention = i;
    }
  }
}

// Rule 6.
void join_twins(Program& program) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    Step& step = program.steps[i];
    if (step.op != Op::k_matmul || step.rotation) continue;
    const auto matrix = [&](const Step& of) -> const Slot& {
      return program.slots[static_cast<size_t>(of.in(inputs::matmul::w))];
    };
    for (const Operand& operand : step.tape.operands) {
      if (operand.access.kind != Access::kRowwise) continue;
      const auto other = maker_for(program, i, operand.slot, Op::k_matmul);
      if (!other) continue;
      const Step& twin = program.steps[*other];
      const Slot &own = matrix(step), &its = matrix(twin);
      const bool alike = twin.in(inputs::matmul::x) == step.in(inputs::matmul::x) &&
                         its.dtype == own.dtype && its.transposed == own.transposed;
      // Rows that its own epilogue reads may be gone by then.
      const bool reads_rows = std::ranges::any_of(twin.tape.operands, [](const Operand& read) {
        return read.access.kind != Access::kResult && read.access.kind != Access::kVector &&
               read.access.kind != Access::kImmediate;
      });
      if (alike && !reads_rows && !twin.twin) step.twin = other;
    }
  }
}

}  // namespace

void join_steps(Program& program, const FuseRules& rules) {
  if (rules.prologue) join_prologues(program);
  if (rules.rotation) join_rotations(program);
  if (rules.kv_store) join_attention(program);
  if (rules.twins) join_twins(program);
}

}  // namespace split
