#include "device/vulkan/codegen/tape_glsl.h"

#include <algorithm>
#include <bit>
#include <set>

#include "base/error.h"
#include "compile/tape_text.h"
#include "device/vulkan/codegen/numbers.h"
#include "tensor/tensor.h"

namespace split::vulkan {
namespace {

// float tree_<op>(chains, lane, again): a reduction of a row over its chains, the same value in all
// lanes; `again`: behind another one, whose exchange lanes may still read.
// Chain c takes c + 128, then c + 64, and so on to c + 1: the order of the CPU.
std::string tree_function(Op op) {
  const std::string combine = function_name(op);
  return cat("float tree_", op_info(op).name, "(float chains[4], uint lane, bool again) {\n",
             "  if (again) barrier();\n"
             "  if (SUMS_ROW) [[unroll]] for (uint j = 0; j < LANE_CHAINS; ++j) {\n"
             "    exchange[lane + j * SUM_LANES] = chains[j];\n  }\n"
             "  barrier();\n"
             "  if (SUBGROUP > 1) {\n"
             "    float parts[ROW_CHAINS / SUBGROUP];\n"
             "    [[unroll]] for (uint i = 0; i < ROW_CHAINS / SUBGROUP; ++i) {\n"
             "      parts[i] = exchange[lane % SUBGROUP + i * SUBGROUP];\n    }\n"
             "    JOIN_HALVES(parts, ROW_CHAINS / SUBGROUP, ",
             combine,
             ")\n"
             "    float value = parts[0];\n"
             "    [[unroll]] for (uint offset = SUBGROUP / 2; offset > 0; offset >>= 1) {\n"
             "      const float other = lane_xor(value, offset);\n"
             "      value = (lane & offset) == 0u ? ",
             combine, "(value, other) : ", combine,
             "(other, value);\n    }\n    return value;\n  }\n"
             "  for (uint half_row = ROW_CHAINS / 2; half_row > 0; half_row >>= 1) {\n"
             "    if (SUMS_ROW) for (uint c = lane; c < half_row; c += SUM_LANES) {\n"
             "      exchange[c] = ",
             combine, "(exchange[c], exchange[c + half_row]);\n    }\n    barrier();\n  }\n",
             "  return exchange[0];\n}\n");
}

}  // namespace

std::string op_functions(const std::vector<const Tape*>& tapes) {
  std::string out;
  std::set<Op> done;
  for (const Tape* tape : tapes) {
    for (const TapeOp& op : tape->values) {
      if (op.loads() || !done.insert(op.op).second) continue;
      out += function_text(op.op);
      if (op.reduces()) out += tree_function(op.op);
    }
  }
  return out;
}

TapeWriter::TapeWriter(const Program& program, const Tape& tape, KernelParts& parts, size_t base,
                       bool stores, size_t max_range, const Halves& halves, int made)
    : program_(program),
      tape_(tape),
      parts_(parts),
      base_(base),
      stores_(stores),
      max_range_(max_range),
      halves_(halves),
      made_(made),
      loads_(static_cast<size_t>(std::ranges::count_if(tape.values, &TapeOp::loads))) {
  const auto tables = static_cast<size_t>(std::ranges::count_if(
      tape_.values, [&](const auto& value) { return is_weight_table(value.load); }));
  // 16 storage buffers are sure: what is left after one each is for tables in pieces.
  const size_t single = loads_ - tables + tape_.outputs.size() + parts_.next_binding();
  pieces_ = tables > 0 && single + tables * kTablePieces <= 16 ? kTablePieces : 1;
  declare();
}

bool TapeWriter::is_weight_table(const Operand& operand) const {
  return operand.access.kind == Access::kGather && slot(operand.slot).dims[0] >= 0;
}

void TapeWriter::uint_constant(const std::string& name, uint32_t value) {
  declared_ << "layout(constant_id = " << parts_.constant(value) << ") const uint " << name
            << " = 1;\n";
}

// Elements of any float type, as words.
void TapeWriter::buffer_of_words(const std::string& name, const Bind& bind) {
  declared_ << kGlsl.buffer(parts_.bind(bind), "readonly ", name, "uint");
}

void TapeWriter::declare() {
  for (size_t i = 0; i < loads_; ++i) {
    const Operand& operand = load_of(i);
    const size_t id = base_ + i;
    switch (operand.access.kind) {
      case Access::kResult:
      case Access::kWhole:
        break;
      case Access::kImmediate:
        declared_ << "layout(constant_id = "
                  << parts_.constant(std::bit_cast<uint32_t>(operand.access.value))
                  << ") const float v" << id << " = 0.0;\n";
        break;
      case Access::kRowwise:
      case Access::kPerRow:
        if (operand.slot == made_) break;
        if (slot(operand.slot).dtype != DType::kF32) {
          throw Error(ErrorKind::kDevice,
                      cat("[vulkan] program '", program_.name, "': slot '", slot(operand.slot).name,
                          "': expected F32 rows, got ", dtype_name(slot(operand.slot).dtype)));
        }
        declared_ << kGlsl.buffer(parts_.bind({Bind::Kind::kRowwise, operand.slot, 0}), "readonly ",
                                  cat("b", id), "float");
        break;
      case Access::kVector:
        buffer_of_words(cat("b", id), {Bind::Kind::kWhole, operand.slot, 0});
        declare_loader(i, 1);
        break;
      case Access::kGather:
        declare_gather(i);
        break;
    }
  }
  if (!stores_) return;
  for (size_t i = 0; i < tape_.outputs.size(); ++i) {
    declared_ << kGlsl.buffer(parts_.bind({Bind::Kind::kRowwise, tape_.outputs[i].slot, 0}),
                              "writeonly ", cat("o", base_ + i),
                              is_half(tape_.outputs[i]) ? "float16_t" : "float");
  }
}

void TapeWriter::declare_gather(size_t i) {
  const Operand& operand = load_of(i);
  const size_t id = base_ + i;
  const Slot& table = slot(operand.slot);
  const std::string& index = slot(operand.access.index).name;
  const std::optional<StepArray> which = step_array_of(index);
  if (!which) {
    throw Error(ErrorKind::kDevice, cat("[vulkan] program '", program_.name, "': index '", index,
                                        "': expected tokens, positions or out_rows"));
  }
  uint_constant(cat("INDEX", id), static_cast<uint32_t>(*which));
  uint_constant(cat("STRIDE", id), row_stride(table));
  const uint32_t pieces = is_weight_table(operand) ? pieces_ : 1;
  uint_constant(cat("PIECE_ROWS", id),
                pieces > 1 ? table_piece_rows(table, max_range_) : 0x7fffffffu);
  for (uint32_t p = 0; p < pieces; ++p) {
    buffer_of_words(p == 0 ? cat("b", id) : cat("b", id, "_", p),
                    {pieces > 1 ? Bind::Kind::kTable : Bind::Kind::kWhole, operand.slot, p});
  }
  declare_loader(i, pieces);
}

// uint word_i(part, element): the word that has it; float value_i(word, element).
void TapeWriter::declare_loader(size_t i, uint32_t pieces) {
  const size_t id = base_ + i;
  uint_constant(cat("TYPE", id), type_code(slot(load_of(i).slot).dtype));
  declared_ << "uint word" << id << "(uint part, uint element) {\n"
            << "  const uint at = TYPE" << id << " == 0 ? element : element >> 1;\n";
  for (uint32_t p = 1; p < pieces; ++p) {
    declared_ << "  if (part == " << p << ") return b" << id << "_" << p << "[at];\n";
  }
  declared_ << "  return b" << id << "[at];\n}\n"
            << "float value" << id << "(uint word, uint element) {\n"
            << "  if (TYPE" << id << " == 0) return uintBitsToFloat(word);\n"
            << "  if (TYPE" << id << " == 1) return unpackHalf2x16(word)[element & 1u];\n"
            << "  return uintBitsToFloat((element & 1u) == 0u ? word << 16 : word & "
               "0xffff0000u);\n}\n";
}

TapeWriter::Finish TapeWriter::finish() const {
  // Words stay as they came until the product is there, so that nothing waits for them.
  std::ostringstream out, fetch, compute;
  for (size_t i = 0; i < loads_; ++i) {
    const size_t id = base_ + i;
    if (made_ >= 0 && load_of(i).slot == made_) {
      compute << "  const float v" << id << " = twin;\n";
      continue;
    }
    switch (load_of(i).access.kind) {
      case Access::kImmediate:
      case Access::kResult:
        break;
      case Access::kVector:
        out << "uint w" << id << "[FETCHES];\n";
        fetch << "  w" << id << "[n] = word" << id << "(0, c);\n";
        compute << "  const float v" << id << " = value" << id << "(w" << id << "[n], c);\n";
        break;
      default:
        out << "float f" << id << "[FETCHES];\n";
        fetch << load(i, "  ", "COLUMNS") << "  f" << id << "[n] = v" << id << ";\n";
        compute << "  const float v" << id << " = f" << id << "[n];\n";
    }
  }
  for (size_t i = loads_; i < tape_.values.size(); ++i) compute << this->compute(i, "  ");
  return {out.str(), fetch.str(), compute.str()};
}

std::string TapeWriter::epilogue(bool put) const {
  const Finish finish = this->finish();
  return cat(finish.variables,
             "void fetch(uint n, uint r, uint c) {\n  const uint row = piece.row_base + r;\n",
             finish.fetch, put ? "  prepare_put(n, row);\n" : "",
             "}\nvoid finish(uint n, uint r, uint c, float product) {\n", finish.compute,
             stores("  ", [](const TapeOutput&) { return true; }),
             put ? cat("  put_kv(n, c, ", name(tape_.outputs[0].value), ");\n") : "", "}\n");
}

std::string TapeWriter::value(std::string_view name) const {
  CHECK(tape_.outputs.size() == 1);
  const Finish finish = this->finish();
  return cat(finish.variables, "void fetch_", name,
             "(uint n, uint r, uint c) {\n  const uint row = piece.row_base + r;\n", finish.fetch,
             "}\nfloat value_", name, "(uint n, uint r, uint c, float product) {\n", finish.compute,
             "  return ", this->name(tape_.outputs[0].value), ";\n}\n");
}

std::string TapeWriter::tile_epilogue(bool put, const Step* twin) const {
  // A tile of an operand has its elements where the product's tile has them.
  std::ostringstream out, loads, each;
  std::string takes = "COLUMNS % 8 == 0";  // rows are aligned
  bool possible = tape_.outputs.size() == 1 && slot(tape_.outputs[0].slot).dims[1] != 1;
  if (twin != nullptr) {
    possible = possible && std::ranges::all_of(twin->tape.values, [](const auto& value) {
                 const Access::Kind kind = value.load.access.kind;
                 return !value.loads() || kind == Access::kResult || kind == Access::kImmediate;
               });
    each << "    twin = value_twin(0, 0, 0, other[i]);\n";
  }
  for (size_t i = 0; i < loads_; ++i) {
    const size_t id = base_ + i;
    const Access::Kind access = load_of(i).access.kind;
    if (twin != nullptr && load_of(i).slot == made_) {
      each << "    const float v" << id << " = twin;\n";
    } else if (access == Access::kVector) {
      const uint32_t binding = parts_.binding_of({Bind::Kind::kWhole, load_of(i).slot, 0});
      for (const auto& [type, letter] : {std::pair{"float", "f"}, {"float16_t", "h"}}) {
        out << kGlsl.buffer(binding, "readonly ", cat(letter, "b", id), type);
      }
      // Every row is the vector: 0 elements from one to the next.
      loads << "  SUM t" << id << ";\n  if (TYPE" << id << " == 0) {\n    coopMatLoadNV(t" << id
            << ", fb" << id << ", c, 0, false);\n  } else {\n    HALF_SUM h;\n"
            << "    coopMatLoadNV(h, hb" << id << ", c, 0, false);\n    t" << id
            << " = SUM(h);\n  }\n";
      each << "    const float v" << id << " = t" << id << "[i];\n";
      takes += cat(" && TYPE", id, " < 2");
    } else if (access == Access::kRowwise) {
      loads << "  SUM t" << id << ";\n  coopMatLoadNV(t" << id << ", b" << id
            << ", r * COLUMNS + c, COLUMNS, false);\n";
      each << "    const float v" << id << " = t" << id << "[i];\n";
    } else if (access != Access::kImmediate && access != Access::kResult) {
      possible = false;
    }
  }
  if (!possible) {
    return "bool takes_tile(uint r, uint c) { return false; }\n"
           "void finish_tile(uint r, uint c, SUM total, SUM other) {}\n";
  }
  for (size_t i = loads_; i < tape_.values.size(); ++i) each << compute(i, "    ");
  const TapeOutput& output = tape_.outputs[0];
  if (put) {
    takes +=
        " && (K_FIRST | V_FIRST | KV_WIDTH) % 16 == 0 && "
        "(!is_key(c) && !is_value(c) || is_page(piece.row_base + r))";
  }
  out << "bool takes_tile(uint r, uint c) { return " << takes << "; }\n"
      << "void finish_tile(uint r, uint c, SUM total, SUM other) {\n"
      << loads.str() << "  for (uint i = 0; i < total.length(); ++i) {\n"
      << "    const float product = total[i];\n"
      << each.str() << "    total[i] = " << name(output.value) << ";\n  }\n";
  if (put) {
    out << "  if (is_key(c) || is_value(c)) {\n    put_tile(piece.row_base + r, c, total);\n"
           "    return;\n  }\n";
  }
  if (!stores_) {
    out << "  keep_tile(r, c, total);\n}\n";
    return out.str();
  }
  out << "  coopMatStoreNV(" << (is_half(output) ? "HALF_SUM(total)" : "total") << ", o" << base_
      << ", r * COLUMNS + c, COLUMNS, false);\n}\n";
  return out.str();
}

std::string TapeWriter::group(int64_t columns) const {
  constexpr int64_t kMostHeld = 4096;  // what a lane holds of them is in registers
  const bool one = tape_.outputs.size() == 1 && slot(tape_.outputs[0].slot).dims[1] == columns;
  if (one && columns <= kMostHeld) return held_group();
  return cat(
      "void main() {\n  const uint r = gl_WorkGroupID.x;\n  if (!has_row(r)) return;\n"
      "  const uint lane = lane_index();\n",
      row_body("COLUMNS", false), "}\n");
}

std::string TapeWriter::row_body(std::string_view columns, bool stage) const {
  std::ostringstream out;
  const std::string loop =
      stage ? cat("  FOR_HELD(", base_, ") {\n") : cat("  FOR_ROW(", columns, ") {\n");
  if (!stage) out << "  const uint row = piece.row_base + r;\n";
  for (size_t i = 0; i < loads_; ++i) {
    if (load_of(i).access.kind == Access::kPerRow) out << load(i, "  ", columns);
  }
  bool again = false;
  for (size_t value = loads_; value < tape_.values.size(); ++value) {
    const TapeOp& made = tape_.values[value];
    if (made.reduces()) {
      const std::string v = name(static_cast<int>(value)), chains = cat(v, "_chains");
      const std::string_view start = op_info(made.op).start;
      out << "  float " << chains << "[4];\n  [[unroll]] for (uint j = 0; j < LANE_CHAINS; ++j) "
          << chains << "[j] = " << start << ";\n"
          << loop << slice({made.x}, columns, stage) << "    " << chains
          << "[j] = " << function_name(made.op) << "(" << chains << "[j], " << name(made.x)
          << ");\n"
          << "  } END_ROW\n  const float " << v << " = tree_" << op_info(made.op).name << "("
          << chains << ", lane, " << (again ? "true" : "false") << ");\n";
      again = true;
    } else if (!made.full) {
      out << compute(value, "  ");
    }
  }
  if (stage) return out.str() + staging();
  const auto is_element = [&](const TapeOutput& output) { return tape_.of(output).full; };
  std::vector<int> elements;
  for (const TapeOutput& output : tape_.outputs) {
    if (is_element(output)) elements.push_back(output.value);
  }
  if (!elements.empty()) {
    out << loop << slice(elements, columns, stage) << stores("    ", is_element) << "  } END_ROW\n";
  }
  if (elements.size() < tape_.outputs.size()) {
    out << "  if (lane == 0) {\n"
        << stores("    ", [&](const TapeOutput& output) { return !is_element(output); }) << "  }\n";
  }
  return out.str();
}

std::string TapeWriter::name(int value) const {
  const bool product = tape_[value].load.access.kind == Access::kResult;
  return product ? "product" : cat("v", base_ + static_cast<size_t>(value));
}

std::string TapeWriter::load(size_t i, const char* indent, std::string_view columns,
                             const char* type) const {
  const size_t id = base_ + i;
  switch (load_of(i).access.kind) {
    case Access::kRowwise:
      return cat(indent, type, "v", id, " = b", id, "[r * ", columns, " + c];\n");
    case Access::kPerRow:
      return cat(indent, type, "v", id, " = b", id, "[r];\n");
    case Access::kVector:
      return cat(indent, type, "v", id, " = value", id, "(word", id, "(0, c), c);\n");
    case Access::kGather:
      return cat(indent, "uint at", id, " = symbol(INDEX", id, ", row);\n", indent, "uint e", id,
                 " = at", id, " % PIECE_ROWS", id, " * STRIDE", id, " + c;\n", indent, type, "v",
                 id, " = value", id, "(word", id, "(at", id, " / PIECE_ROWS", id, ", e", id, "), e",
                 id, ");\n");
    default:
      return "";
  }
}

std::string TapeWriter::compute(size_t i, const char* indent) const {
  const TapeOp& made = tape_.values[i];
  return cat(indent, "float v", base_ + i, " = ", function_name(made.op), "(", name(made.x),
             made.z >= 0 ? cat(", ", name(made.z)) : "", ");\n");
}

// Writes what has one value an element and is needed for `values`, in order.
std::string TapeWriter::slice(const std::vector<int>& values, std::string_view columns,
                              bool held) const {
  std::vector<bool> made;  // values of rows
  for (const TapeOp& op : tape_.values) made.push_back(!op.full);
  const std::vector<bool> needed = tape_.needed(values, made);
  std::string out;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (!needed[i]) continue;
    if (i >= loads_) {
      out += compute(i, "    ");
    } else if (held && is_held(i)) {
      out += cat("    const float v", base_ + i, " = held", base_ + i, "[i];\n");
    } else {
      out += load(i, "    ", columns);
    }
  }
  return out;
}

template <typename Predicate>
std::string TapeWriter::stores(const char* indent, const Predicate& wanted) const {
  std::string out;
  for (size_t i = 0; i < tape_.outputs.size(); ++i) {
    const TapeOutput& output = tape_.outputs[i];
    if (!wanted(output)) continue;
    const bool single = slot(output.slot).dims[1] == 1;
    const std::string value = name(output.value);
    out += cat(indent, "o", base_ + i, single ? "[r]" : "[r * COLUMNS + c]", " = ",
               is_half(output) ? cat("float16_t(", value, ")") : value, ";\n");
  }
  return out;
}

}  // namespace split::vulkan
