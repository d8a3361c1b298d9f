#include "compile/compile.h"

#include "compile/fuse.h"

namespace split {
namespace {

// Turns units into steps. Slots and operands appear as they are first needed, so that the numbering
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
    if (node.op == Op::k_constant) return {Access::kImmediate, -1, -1, node.value};
    if (node.op == Op::k_gather) {
      return {Access::kGather, value_slot(*node.inputs[0]), value_slot(*node.inputs[1]), 0};
    }
    if (node.dims.size() == 1) return {Access::kVector, value_slot(node), -1, 0};
    CHECK(node.dims.size() == 2);
    const bool per_row = node.dims[1] == 1 && columns != 1;
    return {per_row ? Access::kPerRow : Access::kRowwise, value_slot(node), -1, 0};
  }

  // The tape over `nodes`, in order. `result` is the node whose value the kernel has just made, or
  // null.
  Tape tape(const std::vector<const Node*>& nodes, const Node* result, int64_t columns,
            const std::vector<const Node*>& wanted) {
    Tape tape;
    std::vector<const Node*> operand_nodes;
    const auto is_inside = [&](const Node* node) {
      return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
    };
    const auto add_operand = [&](const Node* node) {
      if (is_inside(node) ||
          std::find(operand_nodes.begin(), operand_nodes.end(), node) != operand_nodes.end()) {
        return;
      }
      operand_nodes.push_back(node);
      tape.operands.push_back(node == result ? Operand{Access::kResult, -1, -1, 0}
                                             : operand(*node, columns));
    };
    if (result != nullptr) add_operand(result);
    for (const Node* node : nodes) {
      for (const auto& in : node->inputs) add_operand(in.get());
    }
    const auto value_of = [&](const Node* node) {
      const auto at = std::find(operand_nodes.begin(), operand_nodes.end(), node);
      if (at != operand_nodes.end()) return static_cast<int>(at - operand_nodes.begin());
      const auto in = std::find(nodes.begin(), nodes.end(), node);
      CHECK(in != nodes.end());
      return static_cast<int>(operand_nodes.size()) + static_cast<int>(in - nodes.begin());
    };
    for (const Node* node : nodes) {
      tape.instructions.push_back({node->op, value_of(node->inputs[0].get()),
                                   node->inputs.size() > 1 ? value_of(node->inputs[1].get()) : -1});
    }
    for (const Node* node : wanted) tape.outputs.push_back({value_of(node), value_slot(*node)});
    return tape;
  }

  void emit_unit(const Unit& unit) {
    Step step;
    step.rows = unit.rows;
    step.columns = unit.columns;
    if (unit.kernel == nullptr) {
      if (unit.prologue_of != nullptr) return;  // part of the matmul's step
      step.tape = tape(unit.nodes, nullptr, unit.columns, unit.wanted);
    } else if (unit.kernel->op == Op::k_attention) {
      step.kind = StepKind::kAttention;
      step.qkv = value_slot(*unit.kernel->inputs[0]);
      step.k_cache = value_slot(*unit.kernel->inputs[1]);
      step.v_cache = value_slot(*unit.kernel->inputs[2]);
      step.heads = unit.kernel->heads;
      step.scale = unit.kernel->scale;
      step.out = value_slot(*unit.kernel);
    } else if (unit.kernel->op == Op::k_topk) {
      step.kind = StepKind::kTopK;
      step.inner = unit.kernel->inputs[0]->dims[1];
      step.x = value_slot(*unit.kernel->inputs[0]);
      step.out = value_slot(*unit.kernel);
    } else {
      step.kind = StepKind::kMatmul;
      const Node& matrix = *unit.kernel->inputs[1];
      const bool transposed = matrix.op == Op::k_transpose;
      step.inner = matrix.dims[0];
      if (unit.prologue != nullptr) {
        step.prologue = tape(unit.prologue->nodes, nullptr, step.inner, {});
        const Node* x = unit.kernel->inputs[0].get();
        const auto at = std::find(unit.prologue->nodes.begin(), unit.prologue->nodes.end(), x);
        const auto index = static_cast<size_t>(at - unit.prologue->nodes.begin());
        step.prologue.outputs.push_back(
            {static_cast<int>(step.prologue.operands.size() + index), -1});
      } else {
        step.x = value_slot(*unit.kernel->inputs[0]);
      }
      step.w = leaf_slot(transposed ? *matrix.inputs[0] : matrix, transposed);
      step.tape = tape(unit.nodes, unit.kernel, unit.columns, unit.wanted);
    }
    program_.steps.push_back(std::move(step));
  }

  const Units& units_;
  Program program_;
  std::map<const Node*, int> slot_of_;
};

}  // namespace

Program compile(std::string name, const std::vector<NamedOutput>& outputs, const FuseRules& rules) {
  const Units units = fuse(outputs, rules);
  Program program = Emitter(std::move(name), units).emit(outputs);
  plan_arena(
      program,
      64);  // bytes: one cache line, and a multiple of any device's storage alignment times 4 rows
  return program;
}

}  // namespace split
