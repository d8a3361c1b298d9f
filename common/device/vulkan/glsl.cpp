#include "device/vulkan/glsl.h"

#include <algorithm>
#include <bit>
#include <set>
#include <sstream>

#include "base/error.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

constexpr std::string_view kCommon =
#include "device/vulkan/shaders/common.glsl"
    ;
constexpr std::string_view kMatmul =
#include "device/vulkan/shaders/matmul.comp"
    ;
constexpr std::string_view kPages =
#include "device/vulkan/shaders/pages.glsl"
    ;
constexpr std::string_view kKvStore =
#include "device/vulkan/shaders/kv_store.comp"
    ;
constexpr std::string_view kAttention =
#include "device/vulkan/shaders/attention.comp"
    ;
constexpr std::string_view kMerge =
#include "device/vulkan/shaders/merge.comp"
    ;

std::string header(bool shuffle) {
  return cat(
      "#version 460\n"
      "#extension GL_EXT_control_flow_attributes : require\n"
      "#extension GL_EXT_shader_16bit_storage : require\n",
      shuffle ? "#extension GL_KHR_shader_subgroup_basic : require\n"
                "#extension GL_KHR_shader_subgroup_shuffle : require\n"
                "#define SHUFFLE\n"
              : "",
      kCommon);
}

// The text of one tape.
class TapeWriter {
 public:
  TapeWriter(const Program& program, const Tape& tape, uint32_t first_binding, size_t max_range)
      : program_(program),
        tape_(tape),
        first_binding_(first_binding),
        max_range_(max_range),
        per_row_(tape.per_row()) {
    size_t tables = 0;
    for (const Operand& operand : tape_.operands) tables += is_weight_table(operand);
    // 16 storage buffers are sure: what is left after one each is for tables in pieces.
    const size_t single = tape_.operands.size() - tables + tape_.outputs.size() + first_binding;
    pieces_ = tables > 0 && single + tables * kTablePieces <= 16 ? kTablePieces : 1;
    declare();
  }

  Kernel finish(std::string text) {
    return {std::move(text), std::move(binds_), std::move(constants_)};
  }

  // Buffers, constants, loaders and the functions of the ops.
  std::string declarations() const {
    return cat(op_functions_glsl(), declared_.str(), op_functions());
  }

  // void finish(): the tape over one element of a matmul's result.
  std::string epilogue() const {
    std::ostringstream out;
    out << "void finish(uint r, uint c, float product) {\n  uint row = piece.row_base + r;\n";
    for (size_t i = 0; i < tape_.operands.size(); ++i) {
      if (tape_.operands[i].access != Access::kImmediate) out << load(i, "  ");
    }
    for (size_t i = 0; i < tape_.instructions.size(); ++i) out << compute(i, "  ");
    out << stores("  ", [](const TapeOutput&) { return true; }) << "}\n";
    return out.str();
  }

  // void main(): the tape over the row of this workgroup.
  std::string group() const {
    std::ostringstream out;
    out << "void main() {\n  const uint r = gl_WorkGroupID.x;\n"
           "  if (r >= row_count()) return;\n"
           "  const uint row = piece.row_base + r;\n  const uint lane = lane_index();\n";
    for (size_t i = 0; i < tape_.operands.size(); ++i) {
      if (tape_.operands[i].access == Access::kPerRow) out << load(i, "  ");
    }
    for (size_t i = 0; i < tape_.instructions.size(); ++i) {
      const Instruction& instruction = tape_.instructions[i];
      const size_t value = tape_.operands.size() + i;
      if (op_info(instruction.op).kind == OpKind::kReduce) {
        const std::string op(op_info(instruction.op).name);
        out << "  float v" << value << " = " << op_info(instruction.op).start << ";\n"
            << "  for (uint c = lane; c < COLUMNS; c += WORKGROUP) {\n"
            << slice({instruction.x}) << "    v" << value << " = combine_" << op << "(v" << value
            << ", " << name(instruction.x) << ");\n  }\n"
            << "  v" << value << " = tree_" << op << "(v" << value << ", lane);\n";
      } else if (per_row_[value]) {
        out << compute(i, "  ");
      }
    }
    std::vector<int> elements;
    for (const TapeOutput& output : tape_.outputs) {
      if (!per_row_[static_cast<size_t>(output.value)]) elements.push_back(output.value);
    }
    const auto is_element = [&](const TapeOutput& output) {
      return !per_row_[static_cast<size_t>(output.value)];
    };
    if (!elements.empty()) {
      out << "  for (uint c = lane; c < COLUMNS; c += WORKGROUP) {\n"
          << slice(elements) << stores("    ", is_element) << "  }\n";
    }
    if (elements.size() < tape_.outputs.size()) {
      out << "  if (lane == 0) {\n"
          << stores("    ", [&](const TapeOutput& output) { return !is_element(output); })
          << "  }\n";
    }
    out << "}\n";
    return out.str();
  }

 private:
  const Slot& slot(int index) const { return program_.slots[static_cast<size_t>(index)]; }

  bool is_weight_table(const Operand& operand) const {
    return operand.access == Access::kGather && slot(operand.slot).dims[0] >= 0;
  }

  uint32_t constant(uint32_t value) {
    constants_.push_back(value);
    return kTapeConstants + static_cast<uint32_t>(constants_.size()) - 1;
  }

  uint32_t binding(Bind bind) {
    binds_.push_back(bind);
    return first_binding_ + static_cast<uint32_t>(binds_.size()) - 1;
  }

  void uint_constant(const std::string& name, uint32_t value) {
    declared_ << "layout(constant_id = " << constant(value) << ") const uint " << name << " = 1;\n";
  }

  // Elements of any float type, as words.
  void buffer_of_words(const std::string& name, Bind bind) {
    declared_ << "layout(set = 0, binding = " << binding(bind) << ") readonly buffer B" << name
              << " { uint " << name << "[]; };\n";
  }

  void declare() {
    for (size_t i = 0; i < tape_.operands.size(); ++i) {
      const Operand& operand = tape_.operands[i];
      switch (operand.access) {
        case Access::kResult:
          break;
        case Access::kImmediate:
          declared_ << "layout(constant_id = " << constant(std::bit_cast<uint32_t>(operand.value))
                    << ") const float v" << i << " = 0.0;\n";
          break;
        case Access::kRowwise:
        case Access::kPerRow:
          if (slot(operand.slot).dtype != DType::kF32) {
            throw Error(
                ErrorKind::kDevice,
                cat("[vulkan] program '", program_.name, "': slot '", slot(operand.slot).name,
                    "': expected F32 rows, got ", dtype_name(slot(operand.slot).dtype)));
          }
          declared_ << "layout(set = 0, binding = "
                    << binding({Bind::Kind::kRowwise, operand.slot, 0}) << ") readonly buffer Bb"
                    << i << " { float b" << i << "[]; };\n";
          break;
        case Access::kVector:
          buffer_of_words(cat("b", i), {Bind::Kind::kWhole, operand.slot, 0});
          declare_loader(i, operand.slot, 1);
          break;
        case Access::kGather:
          declare_gather(i, operand);
          break;
      }
    }
    for (size_t i = 0; i < tape_.outputs.size(); ++i) {
      declared_ << "layout(set = 0, binding = "
                << binding({Bind::Kind::kRowwise, tape_.outputs[i].slot, 0})
                << ") writeonly buffer Bo" << i << " { float o" << i << "[]; };\n";
    }
  }

  void declare_gather(size_t i, const Operand& operand) {
    const Slot& table = slot(operand.slot);
    const std::string& index = slot(operand.index).name;
    const uint32_t which = index == "tokens"      ? 0u
                           : index == "positions" ? 1u
                           : index == "out_rows"  ? 3u
                                                  : ~0u;
    if (which == ~0u) {
      throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': index '", index,
                                          "': expected tokens, positions or out_rows"));
    }
    uint_constant(cat("INDEX", i), which);
    uint_constant(cat("STRIDE", i), row_stride(table));
    const uint32_t pieces = is_weight_table(operand) ? pieces_ : 1;
    uint_constant(cat("PIECE_ROWS", i),
                  pieces > 1 ? table_piece_rows(table, max_range_) : 0x7fffffffu);
    for (uint32_t p = 0; p < pieces; ++p) {
      buffer_of_words(p == 0 ? cat("b", i) : cat("b", i, "_", p),
                      {pieces > 1 ? Bind::Kind::kTable : Bind::Kind::kWhole, operand.slot, p});
    }
    declare_loader(i, operand.slot, pieces);
  }

  // float load_i(part, element)
  void declare_loader(size_t i, int slot_index, uint32_t pieces) {
    uint_constant(cat("TYPE", i), type_code(slot(slot_index).dtype));
    declared_ << "uint word" << i << "(uint part, uint at) {\n";
    for (uint32_t p = 1; p < pieces; ++p) {
      declared_ << "  if (part == " << p << ") return b" << i << "_" << p << "[at];\n";
    }
    declared_
        << "  return b" << i << "[at];\n}\n"
        << "float load" << i << "(uint part, uint at) {\n"
        << "  if (TYPE" << i << " == 0) return uintBitsToFloat(word" << i << "(part, at));\n"
        << "  const uint both = word" << i << "(part, at >> 1);\n"
        << "  if (TYPE" << i << " == 1) return unpackHalf2x16(both)[at & 1u];\n"
        << "  return uintBitsToFloat((at & 1u) == 0u ? both << 16 : both & 0xffff0000u);\n}\n";
  }

  std::string op_functions() const {
    std::ostringstream out;
    std::set<std::string> done;
    for (const Instruction& instruction : tape_.instructions) {
      const OpInfo& op = op_info(instruction.op);
      const std::string name(op.name);
      if (!done.insert(cat(static_cast<int>(op.kind), name)).second) continue;
      if (op.kind == OpKind::kReduce) {
        out << "float combine_" << name << "(float acc, float x) { float y = " << op.forward
            << "; return y; }\n"
            << "float tree_" << name
            << "(float value, uint lane) {\n"
               "  for (uint offset = 1; offset < WORKGROUP; offset <<= 1) {\n"
               "    float other;\n"
               "    if (offset < SUBGROUP) {\n      other = lane_xor(value, offset);\n"
               "    } else {\n      barrier();\n      exchange[lane] = value;\n      barrier();\n"
               "      other = exchange[lane ^ offset];\n    }\n"
            << "    value = (lane & offset) == 0u ? combine_" << name << "(value, other) : combine_"
            << name << "(other, value);\n  }\n  return value;\n}\n";
      } else {
        out << "float op_" << name << "(float x" << (op.kind == OpKind::kBinary ? ", float z" : "")
            << ") { float y = " << op.forward << "; return y; }\n";
      }
    }
    return out.str();
  }

  std::string name(int value) const {
    const auto i = static_cast<size_t>(value);
    const bool product = i < tape_.operands.size() && tape_.operands[i].access == Access::kResult;
    return product ? "product" : cat("v", value);
  }

  std::string load(size_t i, const char* indent) const {
    const Operand& operand = tape_.operands[i];
    switch (operand.access) {
      case Access::kRowwise:
        return cat(indent, "float v", i, " = b", i, "[r * COLUMNS + c];\n");
      case Access::kPerRow:
        return cat(indent, "float v", i, " = b", i, "[r];\n");
      case Access::kVector:
        return cat(indent, "float v", i, " = load", i, "(0, c);\n");
      case Access::kGather:
        return cat(indent, "uint at", i, " = symbol(INDEX", i, ", row);\n", indent, "float v", i,
                   " = load", i, "(at", i, " / PIECE_ROWS", i, ", at", i, " % PIECE_ROWS", i,
                   " * STRIDE", i, " + c);\n");
      default:
        return "";
    }
  }

  std::string compute(size_t i, const char* indent) const {
    const Instruction& instruction = tape_.instructions[i];
    return cat(indent, "float v", tape_.operands.size() + i, " = op_", op_info(instruction.op).name,
               "(", name(instruction.x), instruction.z >= 0 ? cat(", ", name(instruction.z)) : "",
               ");\n");
  }

  // What has one value an element and is needed for `values`, in order.
  std::string slice(const std::vector<int>& values) const {
    std::vector<bool> needed(tape_.operands.size() + tape_.instructions.size(), false);
    for (const int value : values) needed[static_cast<size_t>(value)] = true;
    for (size_t i = needed.size(); i-- > tape_.operands.size();) {
      if (!needed[i] || per_row_[i]) continue;
      const Instruction& instruction = tape_.instructions[i - tape_.operands.size()];
      needed[static_cast<size_t>(instruction.x)] = true;
      if (instruction.z >= 0) needed[static_cast<size_t>(instruction.z)] = true;
    }
    std::string out;
    for (size_t i = 0; i < needed.size(); ++i) {
      if (!needed[i] || per_row_[i]) continue;
      out +=
          i < tape_.operands.size() ? load(i, "    ") : compute(i - tape_.operands.size(), "    ");
    }
    return out;
  }

  template <typename Predicate>
  std::string stores(const char* indent, const Predicate& wanted) const {
    std::string out;
    for (size_t i = 0; i < tape_.outputs.size(); ++i) {
      const TapeOutput& output = tape_.outputs[i];
      if (!wanted(output)) continue;
      const bool single = slot(output.slot).dims[1] == 1;
      out += cat(indent, "o", i, single ? "[r]" : "[r * COLUMNS + c]", " = ", name(output.value),
                 ";\n");
    }
    return out;
  }

  const Program& program_;
  const Tape& tape_;
  const uint32_t first_binding_;
  const size_t max_range_;
  const std::vector<bool> per_row_;
  uint32_t pieces_ = 1;
  std::ostringstream declared_;
  std::vector<Bind> binds_;
  std::vector<uint32_t> constants_;
};

constexpr std::string_view kColumns = "layout(constant_id = 4) const uint COLUMNS = 1;\n";

}  // namespace

uint32_t row_stride(const Slot& slot) {
  const bool weight = slot.kind == SlotKind::kWeight;
  const auto columns = static_cast<uint32_t>(slot.dims.size() < 2 ? slot.dims[0] : slot.dims[1]);
  return weight && slot.dims.size() == 2 ? (columns + 7) / 8 * 8 : columns;
}

uint32_t type_code(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kBF16:
      return 2;
    default:
      throw Error(ErrorKind::kDevice,
                  cat("[vulkan] expected F32, F16 or BF16 elements, got ", dtype_name(dtype)));
  }
}

uint32_t table_piece_rows(const Slot& slot, size_t max_range) {
  const size_t row = row_stride(slot) * dtype_size(slot.dtype);
  return static_cast<uint32_t>(
      std::min<size_t>(max_range / row / kPieceAlign * kPieceAlign, 0x7fffffff));
}

Kernel group_kernel(const Program& program, const Step& step, bool shuffle, size_t max_range) {
  TapeWriter writer(program, step.tape, 1, max_range);
  std::string text = cat(header(shuffle), kColumns, "shared float exchange[WORKGROUP];\n",
                         writer.declarations(), writer.group());
  return writer.finish(std::move(text));
}

Kernel matmul_kernel(const Program& program, const Step& step, bool shuffle, size_t max_range) {
  TapeWriter writer(program, step.tape, 3, max_range);
  std::string text =
      cat(header(shuffle), kColumns, writer.declarations(), writer.epilogue(), kMatmul);
  return writer.finish(std::move(text));
}

std::string kv_store_text(bool shuffle) { return cat(header(shuffle), kPages, kKvStore); }
std::string attention_text(bool shuffle) {
  return cat(header(shuffle), op_functions_glsl(), kPages, kAttention);
}
std::string merge_text(bool shuffle) { return cat(header(shuffle), op_functions_glsl(), kMerge); }

}  // namespace split::vulkan
