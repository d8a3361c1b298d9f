#include "device/webgpu/tape_wgsl.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "compile/tape_text.h"
#include "device/webgpu/merge_products.h"

namespace split::webgpu {
namespace {

constexpr std::string_view kColumns = "override COLUMNS: u32;\n";

class Writer {
 public:
  Writer(const Program& program, const Tape& tape, uint32_t first_binding)
      : program_(program), tape_(tape), first_binding_(first_binding) {
    for (size_t i = 0; i < tape_.values.size(); ++i) declare(i);
    for (size_t i = 0; i < tape_.outputs.size(); ++i) {
      buffer(cat("o", i), tape_.outputs[i].slot, "f32", true);
    }
  }

  std::string row_body() const;
  std::string finish() const;
  TapeKernel kernel(std::string_view before, std::string_view body) && {
    kernel_.text = cat(before, declared_, body);
    return std::move(kernel_);
  }

 private:
  const Slot& slot(int index) const { return program_.slots[static_cast<size_t>(index)]; }
  std::string name(int value) const {
    const auto& made = tape_[value];
    if (!made.loads() || made.load.access.kind != Access::kResult) return cat("v", value);
    return made.load.access.first == kTwinProduct ? "twin" : "product";
  }
  void number(const std::string& name, uint32_t value) {
    declared_ += cat("override ", name, ": u32;\n");
    kernel_.overrides.emplace_back(name, value);
  }
  void buffer(const std::string& name, int slot, std::string_view type, bool written) {
    const auto binding = first_binding_ + static_cast<uint32_t>(kernel_.binds.size());
    declared_ += buffer_text(binding, written ? "read_write" : "read", name, type);
    kernel_.binds.push_back({slot, written});
  }
  std::string first_of(size_t i) const {
    return slot(tape_.values[i].load.slot).dims[0] >= 0 ? cat(" - FIRST", i) : "";
  }
  void declare(size_t i);
  void declare_gather(size_t i);
  void declare_words(size_t i);
  std::string load(size_t i, const char* indent) const;
  std::string compute(size_t i, const char* indent) const;
  std::string slice(const std::vector<int>& wanted, const char* indent) const;
  std::string store(size_t output, const char* indent) const;

  const Program& program_;
  const Tape& tape_;
  const uint32_t first_binding_;
  std::string declared_, elsewhere_;  // leaves a row to another piece of its table
  TapeKernel kernel_;
};

void Writer::declare(size_t i) {
  const auto& value = tape_.values[i];
  if (!value.loads()) return;
  const Operand& operand = value.load;
  switch (operand.access.kind) {
    case Access::kResult:
    case Access::kWhole:
      break;
    case Access::kImmediate: {
      const float number = operand.access.value;
      if (std::isfinite(number)) {
        declared_ += cat("override v", i, ": f32;\n");
        kernel_.overrides.emplace_back(cat("v", i), number);
      } else {
        declared_ += cat("override bits", i, ": i32;\n");
        kernel_.overrides.emplace_back(cat("bits", i), std::bit_cast<int32_t>(number));
      }
      break;
    }
    case Access::kRowwise:
    case Access::kPerRow:
      if (slot(operand.slot).dtype != DType::kF32) {
        throw Error(ErrorKind::kDevice,
                    cat("[webgpu] program '", program_.name, "': slot '", slot(operand.slot).name,
                        "': expected F32 rows, got ", dtype_name(slot(operand.slot).dtype)));
      }
      buffer(cat("b", i), operand.slot, "f32", false);
      break;
    case Access::kGather:
      declare_gather(i);
      [[fallthrough]];
    case Access::kVector:
      declare_words(i);
      break;
  }
}

// fn row_i(r): the row that row r of the step gathers, of this piece of the table.
void Writer::declare_gather(size_t i) {
  const Operand& operand = tape_.values[i].load;
  const StepInput index = step_input_of(slot(operand.access.index));
  number(cat("INDEX", i), static_cast<uint32_t>(index));
  const Dims& dims = slot(operand.slot).dims;
  const bool table = dims[0] >= 0;
  number(cat("STRIDE", i), static_cast<uint32_t>(table ? row_stride(dims[1]) : dims[1]));
  if (!table) return;
  declared_ += cat("override FIRST", i, ": u32 = 0u;\noverride END", i, ": u32 = 0xffffffffu;\n");
  elsewhere_ += cat("  if (symbol(INDEX", i, ", r) < FIRST", i, " || symbol(INDEX", i,
                    ", r) >= END", i, ") { return; }\n");
  kernel_.tables.push_back({i, operand.slot, index});
}

// fn value_i(at): element `at` of a buffer of any float type.
void Writer::declare_words(size_t i) {
  const int its = tape_.values[i].load.slot;
  buffer(cat("b", i), its, "u32", false);
  number(cat("TYPE", i), type_code(program_, slot(its), false));
  declared_ += cat("fn value", i, "(at: u32) -> f32 {\n  if (TYPE", i,
                   " == 0u) { return bitcast<f32>(b", i, "[at]); }\n  let word = b", i,
                   "[at >> 1u];\n  let odd = (at & 1u) == 1u;\n"
                   "  if (TYPE",
                   i,
                   " == 1u) {\n    let both = unpack2x16float(word);\n"
                   "    return select(both.x, both.y, odd);\n  }\n"
                   "  return bitcast<f32>(select(word << 16u, word & 0xffff0000u, odd));\n}\n");
}

std::string Writer::load(size_t i, const char* indent) const {
  const Operand& operand = tape_.values[i].load;
  const std::string let = cat(indent, "let v", i, " = ");
  switch (operand.access.kind) {
    case Access::kRowwise:
      return cat(let, "b", i, "[r * COLUMNS + c];\n");
    case Access::kPerRow:
      return cat(let, "b", i, "[r];\n");
    case Access::kVector:
      return cat(let, "value", i, "(c);\n");
    case Access::kGather:
      return cat(let, "value", i, "((symbol(INDEX", i, ", r)", first_of(i), ") * STRIDE", i,
                 " + c);\n");
    case Access::kImmediate:
      return std::isfinite(operand.access.value) ? "" : cat(let, "intBitsToFloat(bits", i, ");\n");
    default:
      return "";
  }
}

std::string Writer::compute(size_t i, const char* indent) const {
  const TapeOp& made = tape_.values[i];
  return cat(indent, "let v", i, " = ", function_name(made.op), "(", name(made.x),
             made.z >= 0 ? cat(", ", name(made.z)) : "", ");\n");
}

// Makes what has a value an element and is needed for `wanted`.
std::string Writer::slice(const std::vector<int>& wanted, const char* indent) const {
  std::vector<bool> made;  // values of rows
  for (const TapeOp& op : tape_.values) made.push_back(!op.full);
  const std::vector<bool> needed = tape_.needed(wanted, made);
  std::string out;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i]) out += tape_.values[i].loads() ? load(i, indent) : compute(i, indent);
  }
  return out;
}

std::string Writer::store(size_t output, const char* indent) const {
  const bool single = slot(tape_.outputs[output].slot).dims[1] == 1;
  return cat(indent, "o", output, single ? "[r]" : "[r * COLUMNS + c]", " = ",
             name(tape_.outputs[output].value), ";\n");
}

std::string Writer::row_body() const {
  // As often in each lane as is known when the kernel is compiled, so that loads go ahead together.
  const auto each_column = [](const std::string& text) {
    return cat("  for (var i = 0u; i < COLUMNS / ", kLanes, "u; i++) {\n    let c = i * ", kLanes,
               "u + lane;\n", text, "  }\n  if (lane < COLUMNS % ", kLanes,
               "u) {\n    let c = COLUMNS - COLUMNS % ", kLanes, "u + lane;\n", text, "  }\n");
  };
  std::string out = elsewhere_;
  std::vector<int> elements;
  for (size_t i = 0; i < tape_.values.size(); ++i) {
    const auto& value = tape_.values[i];
    if (value.loads()) {
      if (!value.full) out += load(i, "  ");
    } else if (value.reduces()) {
      out += cat("  var sum", i, " = ", "start_", op_info(value.op).name, "();\n",
                 each_column(cat(slice({value.x}, "    "), "    sum", i, " = ",
                                 function_name(value.op), "(sum", i, ", ", name(value.x), ");\n")),
                 "  let v", i, " = tree_", op_info(value.op).name, "(sum", i, ", lane);\n");
    } else if (!value.full) {
      out += compute(i, "  ");
    }
  }
  std::string stored, rows;
  for (size_t i = 0; i < tape_.outputs.size(); ++i) {
    if (tape_.of(tape_.outputs[i]).full) {
      elements.push_back(tape_.outputs[i].value);
      stored += store(i, "    ");
    } else {
      rows += store(i, "    ");
    }
  }
  if (!elements.empty()) out += each_column(slice(elements, "    ") + stored);
  if (!rows.empty()) out += cat("  if (lane == 0u) {\n", rows, "  }\n");
  return out;
}

std::string Writer::finish() const {
  std::string out = "fn finish(r: u32, c: u32, product: f32, twin: f32) {\n";
  for (size_t i = 0; i < tape_.values.size(); ++i) {
    out += tape_.values[i].loads() ? load(i, "  ") : compute(i, "  ");
  }
  for (size_t i = 0; i < tape_.outputs.size(); ++i) out += store(i, "  ");
  return out + "}\n";
}

}  // namespace

std::string buffer_text(uint32_t binding, std::string_view access, std::string_view name,
                        std::string_view type) {
  return cat("@group(0) @binding(", binding, ") var<storage, ", access, "> ", name, ": array<",
             type, ">;\n");
}

uint32_t type_code(const Program& program, const Slot& slot, bool blocks) {
  constexpr DType kTypes[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kQ8_0,
                              DType::kQ4_0, DType::kQ6_K, DType::kQ4_K};
  const auto* const found = std::ranges::find(kTypes, slot.dtype);
  if (found == std::end(kTypes) || (is_quantised(slot.dtype) && !blocks)) {
    throw Error(ErrorKind::kDevice,
                cat("[webgpu] program '", program.name, "': slot '", slot.name, "': expected F32, ",
                    blocks ? "F16, BF16, Q8_0, Q4_0, Q6_K or Q4_K" : "F16 or BF16", ", got ",
                    dtype_name(slot.dtype)));
  }
  return static_cast<uint32_t>(found - kTypes);
}

TapeKernel group_kernel(const Program& program, const Step& step) {
  Writer writer(program, step.tape, 1);
  const std::string body = cat(
      "@compute @workgroup_size(", kLanes,
      ")\nfn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: "
      "u32) {\n  let r = group.x;\n",
      writer.row_body(), "}\n");
  return std::move(writer).kernel(
      cat(kColumns, "var<workgroup> exchange: array<f32, ", kLanes, ">;\n"), body);
}

TapeKernel epilogue(const Program& program, const Tape& tape, uint32_t first_binding) {
  Writer writer(program, tape, first_binding);
  const std::string body = writer.finish();
  return std::move(writer).kernel(kColumns, body);
}

}  // namespace split::webgpu
