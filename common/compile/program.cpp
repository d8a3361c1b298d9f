#include "compile/program.h"

#include <algorithm>

#include "base/error.h"

namespace split {

StepInput step_input_of(const Slot& slot) {
  constexpr std::string_view kNames[kStepInputs] = {"tokens", "positions", "marks", "out_rows"};
  const auto at = std::ranges::find(kNames, slot.name);
  CHECK(at != std::end(kNames));
  return static_cast<StepInput>(at - kNames);
}

int Program::find(std::string_view slot_name) const {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].name.empty() && slots[i].name == slot_name) return static_cast<int>(i);
  }
  return -1;
}

bool turns_whole_heads(const Program& program, const Step& rotation) {
  const Turn turn(rotation);
  return turn.cos >= 0 && program.slots[static_cast<size_t>(turn.cos)].dims[1] * 2 ==
                              static_cast<int64_t>(turn.head_dim);
}

std::vector<Reader> readers(const Program& program, int slot) {
  std::vector<Reader> result;
  for (size_t i = 0; i < program.steps.size(); ++i) {
    const Step& step = program.steps[i];
    for (size_t input = 0; input < step.inputs.size(); ++input) {
      if (step.in(input) == slot) result.push_back({i, input});
    }
    for (const auto& value : step.tape.values) {
      if (value.load.slot == slot || value.load.access.index == slot) result.push_back({i});
    }
  }
  return result;
}

std::optional<size_t> joined_before(const Program& program, size_t i) {
  for (size_t before = i; before-- > 0;) {
    const Step& step = program.steps[before];
    if (step.op == Op::k_matmul) continue;
    return before + step.joins >= i ? std::optional(before) : std::nullopt;
  }
  return std::nullopt;
}

std::vector<int> slots_read(const Step& step) {
  std::vector<int> slots;
  for (const Operand& input : step.inputs) {
    if (input.slot >= 0) slots.push_back(input.slot);
  }
  for (const auto& value : step.tape.values) {
    for (const int slot : {value.load.slot, value.load.access.index}) {
      if (slot >= 0) slots.push_back(slot);
    }
  }
  return slots;
}

std::vector<int> results(const Step& step) {
  std::vector<int> slots;
  for (const Operand& output : step.outputs) slots.push_back(output.slot);
  for (const TapeOutput& output : step.tape.outputs) slots.push_back(output.slot);
  return slots;
}

namespace {

std::string dims_text(const Dims& dims) {
  std::string out = "[";
  for (size_t i = 0; i < dims.size(); ++i) {
    if (i > 0) out += ", ";
    out += dims[i] == -1 ? "R" : dims[i] == -2 ? "O" : std::to_string(dims[i]);
  }
  return out + "]";
}

// Builds text without the library's streams, which bring locales along.
struct Text {
  std::string all;
  template <typename Part>
  Text& operator<<(const Part& part) {
    all += cat(part);
    return *this;
  }
};

class Printer {
 public:
  explicit Printer(const Program& program) : program_(program) {}

  std::string text() {
    out_ << "program " << program_.name << ": arena " << program_.arena_row_bytes
         << " bytes a row\n";
    for (const Step& step : program_.steps) print(step);
    return out_.all;
  }

 private:
  std::string slot(int index) const {
    const Slot& s = program_.slots[static_cast<size_t>(index)];
    if (s.kind == SlotKind::kTemp) return cat("t", index, "@", s.offset);
    return s.name + (s.transposed ? "^T" : "");
  }

  std::string operand(const Operand& operand) const {
    switch (operand.access.kind) {
      case Access::kImmediate:
        return cat(operand.access.value);
      case Access::kResult:
        return "product";
      case Access::kGather:
        return cat(slot(operand.slot), "[", slot(operand.access.index), "]");
      default:
        return slot(operand.slot);
    }
  }

  // Rows in Python's slices, unless they are all columns.
  std::string rows(const Operand& operand, size_t columns) const {
    const auto first = static_cast<size_t>(operand.access.first);
    const Dims& dims = program_.slots[static_cast<size_t>(operand.slot)].dims;
    const bool all = static_cast<int64_t>(columns) == dims[1];
    return slot(operand.slot) + (all ? "" : cat("[", first, ":", first + columns, "]"));
  }

  // Values that are computed count from 0.
  std::string value(const Tape& tape, int index) const {
    if (tape[index].loads()) return operand(tape[index].load);
    return cat("%", index - std::ranges::count_if(tape.values, &TapeOp::loads));
  }

  void print(const Tape& tape, std::string_view indent) {
    for (size_t i = 0; i < tape.values.size(); ++i) {
      const TapeOp& op = tape.values[i];
      if (op.loads()) continue;
      out_ << indent << value(tape, static_cast<int>(i)) << " = " << op_info(op.op).name
           << (op.reduces() ? " over row of " : " ") << value(tape, op.x);
      if (op.z >= 0) out_ << ", " << value(tape, op.z);
      out_ << "\n";
    }
    for (const TapeOutput& output : tape.outputs) {
      out_ << indent << slot(output.slot) << " <- " << value(tape, output.value) << "\n";
    }
  }

  // Describes the keys that an attention sees, unless these are all keys before each row.
  static std::string sight(const Step& step) {
    const auto number = [&](size_t i) { return step.attribute<float>(i); };
    const float window = number(attributes::attention::window);
    const float cap = number(attributes::attention::cap);
    return cat(window > 0 ? cat(", window ", window) : "", cap > 0 ? cat(", cap ", cap) : "",
               number(attributes::attention::causal) > 0 ? "" : ", all rows");
  }

  void print(const Step& step) {
    const std::string shape = dims_text({step.rows, step.columns});
    if (step.op == Op::k_group) {
      out_ << "  group " << shape << "\n";
    } else if (step.op == Op::k_matmul) {
      const int w = step.in(inputs::matmul::w);
      out_ << "  matmul " << shape << " = " << slot(step.in(inputs::matmul::x)) << " x " << slot(w)
           << " " << dtype_name(program_.slots[static_cast<size_t>(w)].dtype) << " over "
           << step.inner << "\n";
    } else if (step.op == Op::k_topk) {
      out_ << "  topk " << step.columns / 2 << " of " << dims_text({step.rows, step.inner}) << ": "
           << slot(step.out()) << " <- " << slot(step.in(inputs::topk::x)) << "\n";
    } else if (step.op == Op::k_rotate || step.op == Op::k_norm_rotate) {
      const Turn turn(step);
      out_ << (turn.cos >= 0 ? "  rotate " : "  norm ") << shape << ", " << turn.heads
           << " heads: " << slot(step.out()) << " <- "
           << rows(turn.x, static_cast<size_t>(step.columns));
      if (turn.normed) out_ << " normed by " << slot(turn.weight);
      if (turn.cos >= 0) out_ << ", " << slot(turn.cos) << ", " << slot(turn.sin);
      out_ << "\n";
    } else if (step.op != Op::k_attention) {
      out_ << "  " << op_info(step.op).name << " " << shape << ": " << slot(step.out());
      for (size_t i = 0; i < step.inputs.size(); ++i) {
        out_ << (i == 0 ? " <- " : ", ") << slot(step.in(i));
      }
      out_ << "\n";
    } else {
      const Heads heads(step);
      out_ << "  attention " << shape << ", " << heads.count << " heads"
           << (heads.kv == heads.count ? "" : cat(" over ", heads.kv)) << sight(step) << ": "
           << slot(step.out()) << " <- " << rows(step.inputs[inputs::attention::q], heads.width())
           << ", " << rows(step.inputs[inputs::attention::k], heads.kv_width()) << ", "
           << rows(step.inputs[inputs::attention::v], heads.kv_width()) << ", "
           << slot(step.in(inputs::attention::k_cache)) << ", "
           << slot(step.in(inputs::attention::v_cache));
      if (heads.biased) out_ << ", biased by " << slot(step.in(inputs::attention::bias));
      out_ << "\n";
    }
    print(step.tape, "    ");
    if (step.twin) out_ << "  + twin\n";
    if (!step.siblings.empty()) out_ << "  + " << step.siblings.size() << " siblings\n";
    if (step.rotation) out_ << "  + rotation\n";
    if (step.attention) out_ << "  + keys, values\n";
    if (step.joins == 1) out_ << "  +\n";
    if (step.joins > 1) out_ << "  + each of the next " << step.joins << "\n";
  }

  const Program& program_;
  Text out_;
};

}  // namespace

std::string to_string(const Program& program) { return Printer(program).text(); }

}  // namespace split
