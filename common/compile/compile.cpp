#include "compile/compile.h"

#include "compile/fuse.h"

namespace split {
namespace {

// Turns units into steps. Slots and operands are numbered at their first use, so that the numbering
// is stable.
class Emitter {
 public:
  Emitter(std::string name, const Units& units) : units_(units) { program_.name = std::move(name); }

  Program emit(const std::vector<NamedOutput>& outputs) {
    for (const NamedOutput& output : outputs) {
      const Node* node = output.tensor.node().get();
      if (units_.unit_of.find(node) == units_.unit_of.end()) {
        throw Error(ErrorKind::kShape, cat("[compile] output '", output.name, "' is not computed"));
      }
      const auto [at, fresh] = slot_of_.try_emplace(node, -1);
      if (!fresh) {
        const std::string& other = program_.slots[static_cast<size_t>(at->second)].name;
        throw Error(ErrorKind::kShape,
                    cat("[compile] outputs '", other, "' and '", output.name, "' are one tensor"));
      }
      at->second = add_slot({SlotKind::kOutput, output.name, node->dtype, node->dims, false, 0});
    }
    for (const Unit* unit : units_.order) emit_unit(*unit);
    return std::move(program_);
  }

 private:
  int add_slot(Slot slot) {
    program_.slots.push_back(std::move(slot));
    return static_cast<int>(program_.slots.size()) - 1;
  }

  int leaf_slot(const Node& leaf, bool transposed = false) {
    const SlotKind kind = leaf.op == Op::k_weight ? SlotKind::kWeight : SlotKind::kInput;
    for (size_t i = 0; i < program_.slots.size(); ++i) {
      const Slot& slot = program_.slots[i];
      if (slot.kind == kind && slot.name == leaf.name && slot.transposed == transposed) {
        return static_cast<int>(i);
      }
    }
    return add_slot({kind, leaf.name, leaf.dtype, leaf.dims, transposed, 0});
  }

  // The slot of a value that a step leaves for others.
  int value_slot(const Node& node) {
    if (op_info(node.op).kind == OpKind::kLeaf) return leaf_slot(node);
    const auto [at, fresh] = slot_of_.try_emplace(&node, -1);
    if (fresh) at->second = add_slot({SlotKind::kTemp, "", DType::kF32, node.dims, false, 0});
    return at->second;
  }

  Operand operand(const Node& node, int64_t columns) {
    if (node.op == Op::k_constant) return {-1, {Access::kImmediate, -1, node.value}};
    if (node.op == Op::k_gather) {
      const int table = value_slot(*node.inputs[0]);
      return {table, {Access::kGather, value_slot(*node.inputs[1])}};
    }
    if (node.dims.size() == 1) return {value_slot(node), {Access::kVector}};
    CHECK(node.dims.size() == 2);
    const bool per_row = node.dims[1] == 1 && columns != 1;
    return {value_slot(node), {per_row ? Access::kPerRow : Access::kRowwise}};
  }

  // Makes a kernel's operand: rows, or a whole matrix or cache.
  Operand kernel_input(const Node& node) {
    if (node.op == Op::k_constant) return {-1, {Access::kImmediate, -1, node.value}};
    if (node.op == Op::k_transpose) return {leaf_slot(*node.inputs[0], true), {Access::kWhole}};
    if (node.op == Op::k_columns) {
      const auto first = static_cast<int64_t>(node.attributes[0]);
      return {value_slot(*node.inputs[0]), {.kind = Access::kRowwise, .first = first}};
    }
    const bool rows = node.dims.size() == 2 && node.dims[0] < 0;
    return {value_slot(node), {rows ? Access::kRowwise : Access::kWhole}};
  }

  // The tape over `nodes`, in order. `result` is the node of the kernel's own value, or null.
  Tape tape(const std::vector<const Node*>& nodes, const Node* result, int64_t columns,
            const std::vector<const Node*>& wanted) {
    Tape tape;
    std::vector<const Node*> made;  // nodes of its values
    const auto value_of = [&](const Node* node) {
      const auto at = std::ranges::find(made, node);
      return at == made.end() ? -1 : static_cast<int>(at - made.begin());
    };
    const auto load = [&](const Node* node) {
      if (std::ranges::find(nodes, node) != nodes.end() || value_of(node) >= 0) return;
      Tape::Value value;
      value.load = node == result ? Operand{-1, {Access::kResult}} : operand(*node, columns);
      value.uniform = value.load.access.kind == Access::kImmediate;
      value.full = !value.uniform && value.load.access.kind != Access::kPerRow;
      tape.values.push_back(value);
      made.push_back(node);
    };
    if (result != nullptr) load(result);
    for (const Node* node : nodes) {
      for (const auto& in : node->inputs) load(in.get());
    }
    for (const Node* node : nodes) {
      Tape::Value value;
      value.op = node->op;
      value.x = value_of(node->inputs[0].get());
      if (node->inputs.size() > 1) value.z = value_of(node->inputs[1].get());
      CHECK(value.x >= 0 && (node->inputs.size() < 2 || value.z >= 0));
      value.full = !value.reduces() && (tape[value.x].full || (value.z >= 0 && tape[value.z].full));
      tape.values.push_back(value);
      made.push_back(node);
    }
    for (const Node* node : wanted) tape.outputs.push_back({value_of(node), value_slot(*node)});
    return tape;
  }

  void emit_unit(const Unit& unit) {
    Step step;
    step.rows = unit.rows;
    step.columns = unit.columns;
    if (unit.kernel == nullptr) {
      step.tape = tape(unit.nodes, nullptr, unit.columns, unit.wanted);
    } else {
      emit_kernel(unit, step);
    }
    program_.steps.push_back(std::move(step));
  }

  void emit_kernel(const Unit& unit, Step& step) {
    const Node& kernel = *unit.kernel;
    step.op = kernel.op;
    step.inner = kernel.inputs[0]->dims[1];
    step.attributes = kernel.attributes;
    for (const auto& in : kernel.inputs) step.inputs.push_back(kernel_input(*in));
    if (op_info(kernel.op).epilogue) {
      step.tape = tape(unit.nodes, &kernel, unit.columns, unit.wanted);
    } else {
      step.outputs.push_back({value_slot(kernel), {}});
    }
  }

  const Units& units_;
  Program program_;
  std::map<const Node*, int> slot_of_;
};

}  // namespace

Program compile(std::string name, const std::vector<NamedOutput>& outputs, const FuseRules& rules) {
  const Units units = fuse(outputs, rules);
  Program program = Emitter(std::move(name), units).emit(outputs);
  join_steps(program, rules);
  // Bytes: one cache line, and a multiple of any device's storage alignment times 4 rows.
  plan_arena(program, 64);
  return program;
}

}  // namespace split
