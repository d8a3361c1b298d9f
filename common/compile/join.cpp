// Joins existing steps: each names the neighbours whose work a device may do with its own.
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

// The step of this op whose one result is a temporary that only step `reader` reads.
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
// that may do it. Empty if other steps read them too.
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

// The matmul whose whole result only an attention reads, rotated or plain.
std::optional<size_t> product_for(const Program& program, size_t attention, size_t input) {
  const Operand* operand = &program.steps[attention].inputs[input];
  size_t reader = attention, columns = input == inputs::attention::q
                                           ? Heads(program.steps[attention]).width()
                                           : Heads(program.steps[attention]).kv_width();
  for (const Op op : {Op::k_rotate, Op::k_norm_rotate}) {
    const auto rotation = maker_for(program, reader, operand->slot, op);
    if (!rotation) continue;
    operand = &Turn(program.steps[*rotation]).x;
    reader = *rotation;
  }
  const auto matmul = maker_for(program, reader, operand->slot, Op::k_matmul);
  const bool whole = matmul && operand->access.first == 0 &&
                     program.steps[*matmul].columns == static_cast<int64_t>(columns);
  return whole ? matmul : std::nullopt;
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
    for (const auto& value : step.tape.values) {
      if (!value.loads() || value.load.access.kind != Access::kRowwise) continue;
      const auto other = maker_for(program, i, value.load.slot, Op::k_matmul);
      if (!other) continue;
      const Step& twin = program.steps[*other];
      const Slot &own = matrix(step), &its = matrix(twin);
      const bool alike = twin.in(inputs::matmul::x) == step.in(inputs::matmul::x) &&
                         its.dtype == own.dtype && its.transposed == own.transposed;
      // Rows that its own epilogue reads may be overwritten by then.
      const bool reads_rows = std::ranges::any_of(twin.tape.values, [](const auto& value) {
        const Access::Kind kind = value.load.access.kind;
        return value.loads() && kind != Access::kResult && kind != Access::kVector &&
               kind != Access::kImmediate;
      });
      if (alike && !reads_rows && !twin.twin) step.twin = other;
    }
  }
}

// Whether these are weights of one type that one step each reads.
bool are_like_weights(const Program& program, int a, int b) {
  const Slot &own = program.slots[static_cast<size_t>(a)],
             &its = program.slots[static_cast<size_t>(b)];
  return own.kind == SlotKind::kWeight && its.kind == SlotKind::kWeight && own.dtype == its.dtype &&
         own.transposed == its.transposed && readers(program, a).size() == 1 &&
         readers(program, b).size() == 1;
}

// Whether two matmuls' results are rotated alike, by named steps, or not at all.
bool turn_alike(const Program& program, const Step& a, const Step& b) {
  if (!a.rotation || !b.rotation) return a.rotation == b.rotation;
  const Turn own(program.steps[*a.rotation]), its(program.steps[*b.rotation]);
  return own.head_dim == its.head_dim && own.cos == its.cos && own.sin == its.sin;
}

// Whether two matmuls differ in their columns and weights alone.
bool are_siblings(const Program& program, const Step& a, const Step& b) {
  const size_t values = a.tape.values.size();
  bool alike = a.in(inputs::matmul::x) == b.in(inputs::matmul::x) && a.rows == b.rows &&
               are_like_weights(program, a.in(inputs::matmul::w), b.in(inputs::matmul::w)) &&
               program.slots[static_cast<size_t>(a.in(inputs::matmul::w))].transposed &&
               b.tape.values.size() == values && a.tape.outputs.size() == 1 &&
               b.tape.outputs.size() == 1 && a.tape.outputs[0].value == b.tape.outputs[0].value;
  for (size_t i = 0; alike && i < values; ++i) {
    const Operand &own = a.tape.values[i].load, &its = b.tape.values[i].load;
    const Access::Kind kind = own.access.kind;
    const TapeOp &op = a.tape.values[i], &other = b.tape.values[i];
    alike = op == other && own.access == its.access &&
            (!op.loads() || kind == Access::kResult || kind == Access::kImmediate ||
             (kind == Access::kVector && are_like_weights(program, own.slot, its.slot)));
  }
  return alike;
}

// Rule 7.
void join_siblings(Program& program) {
  for (size_t i = 0; i < program.steps.size(); ++i) {
    if (program.steps[i].op != Op::k_attention) continue;
    const auto q = product_for(program, i, inputs::attention::q);
    if (!q) continue;
    Step& first = program.steps[*q];
    for (const size_t input : {inputs::attention::k, inputs::attention::v}) {
      const auto other = product_for(program, i, input);
      const size_t last = first.siblings.empty() ? *q : first.siblings.back();
      if (!other || *other <= last) break;
      const Step& sibling = program.steps[*other];
      const bool turns =
          input == inputs::attention::k ? turn_alike(program, first, sibling) : !sibling.rotation;
      if (!turns || !are_siblings(program, first, sibling)) break;
      first.siblings.push_back(*other);
    }
  }
}

}  // namespace

void join_steps(Program& program, const FuseRules& rules) {
  if (rules.prologue) join_prologues(program);
  if (rules.rotation) join_rotations(program);
  if (rules.kv_store) join_attention(program);
  if (rules.twins) join_twins(program);
  if (rules.siblings) join_siblings(program);
}

}  // namespace split
