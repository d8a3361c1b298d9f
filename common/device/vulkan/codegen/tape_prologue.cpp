// Writes the loads of a matmul's row that a tape makes: by fours, all on their way before
// anything is computed.
#include "compile/tape_text.h"
#include "device/vulkan/codegen/tape_glsl.h"
#include "tensor/tensor.h"

namespace split::vulkan {

bool TapeWriter::is_held(size_t i) const {
  const Access::Kind access = load_of(i).access.kind;
  return access == Access::kRowwise || access == Access::kVector || access == Access::kGather;
}

// vec4 four_i(r, row, c): elements c .. c + 3 of a row of K, c a multiple of 4; past the end, the
// last one.
std::string TapeWriter::four_loader(size_t i) const {
  const size_t id = base_ + i;
  const Operand& operand = load_of(i);
  const bool rowwise = operand.access.kind == Access::kRowwise,
             gather = operand.access.kind == Access::kGather, table = is_weight_table(operand);
  const uint32_t pieces = table ? pieces_ : 1;
  const Bind::Kind kind = rowwise      ? Bind::Kind::kRowwise
                          : pieces > 1 ? Bind::Kind::kTable
                                       : Bind::Kind::kWhole;
  std::ostringstream out;
  // Its elements by fours, as `type`; what is in pieces by a function of piece and four.
  const auto view = [&](const char* type, const char* letter) {
    std::ostringstream choice;
    for (uint32_t p = 0; p < pieces; ++p) {
      const std::string name = pieces > 1 ? cat(letter, id, "_", p) : cat(letter, id);
      out << kGlsl.buffer(parts_.binding_of({kind, operand.slot, p}), "readonly ", name, type);
      if (p > 0) choice << "  if (part == " << p << ") return " << name << "[four];\n";
    }
    if (pieces == 1) return;
    out << type << " " << letter << id << "_at(uint part, uint four) {\n"
        << choice.str() << "  return " << letter << id << "_0[four];\n}\n";
  };
  const std::string at = !gather ? "c"
                         : table ? cat("at % PIECE_ROWS", id, " * STRIDE", id, " + c")
                                 : cat("at * STRIDE", id, " + c");
  const auto four = [&](const char* letter) {
    return pieces > 1 ? cat(letter, id, "_at(at / PIECE_ROWS", id, ", (", at, ") / 4)")
                      : cat(letter, id, "[(", at, ") / 4]");
  };
  view("vec4", "q");
  std::ostringstream fast;
  if (rowwise) {
    fast << "    return q" << id << "[(r * K + c) / 4];\n";
  } else {
    if (gather) fast << "    const uint at = symbol(INDEX" << id << ", row);\n";
    fast << "    if (TYPE" << id << " == 0" << (gather ? cat(" && STRIDE", id, " % 4 == 0") : "")
         << ") return " << four("q") << ";\n";
    if (!gather || table) {  // halves: a table's rows, too, are whole fours
      view("uvec2", "p");
      fast << "    const uvec2 two = " << four("p") << ";\n    return vec4(value" << id
           << "(two.x, 0), value" << id << "(two.x, 1), value" << id << "(two.y, 0), value" << id
           << "(two.y, 1));\n";
    }
  }
  out << "vec4 four" << id << "(uint r, uint row, uint first) {\n  if (K % 4 == 0) {\n"
      << "    const uint c = first;\n"
      << fast.str() << "  }\n  vec4 four;\n"
      << "  [[unroll]] for (uint j = 0; j < 4; ++j) {\n    const uint c = min(first + j, K - 1);\n"
      << load(i, "    ", "K", "const float ") << "    four[j] = v" << id
      << ";\n  }\n  return four;\n}\n";
  return out.str();
}

std::string TapeWriter::prologue() const {
  // A lane's loads of the row are on their way before anything is computed.
  std::ostringstream held, loads, loaders;
  std::string three;
  for (size_t i = 0; i < loads_; ++i) {
    if (!is_held(i)) continue;
    loaders << four_loader(i);
    held << "vec4 held" << base_ + i << "[HELD" << base_ << "];\n";
    loads << "    held" << base_ + i << "[i] = four" << base_ + i << "(r, row, c);\n";
  }
  const std::string row = "  const uint row = piece.row_base + r;\n";
  if (const auto both = moments()) {
    held << "float three" << base_ << "[3];\n";
    three = three_elements(*both, "K");
  }
  return cat(
      loaders.str(), "const uint HELD", base_, " = ((K + 3) / 4 + SUM_LANES - 1) / SUM_LANES;\n",
      held.str(), "void fetch_stage(uint r, uint lane) {\n  if (!SUMS_ROW) return;\n", row,
      "  [[unroll]] for (uint i = 0; i < HELD", base_,
      "; ++i) {\n    const uint c = min(lane + i * SUM_LANES, (K + 3) / 4 - 1) * 4;\n", loads.str(),
      "  }\n", three, "}\nvoid stage(uint r, uint lane) {\n", row, row_body("K", true), "}\n");
}

std::string TapeWriter::held_group() const {
  const std::string o = cat("o", base_), four = is_half(tape_.outputs[0]) ? "f16vec4" : "vec4";
  const uint32_t binding = parts_.binding_of({Bind::Kind::kRowwise, tape_.outputs[0].slot, 0});
  return cat("#define K COLUMNS\n#define put_x(four, y) put_row(r, four, y)\n",
             kGlsl.buffer(binding, "writeonly ", cat("f", o), four),
             "void put_row(uint r, uint four, vec4 y) {\n  if (K % 4 == 0) {\n    f", o,
             "[r * (K / 4) + four] = ", four, "(y);\n    return;\n  }\n",
             "  for (uint j = 0; j < min(4u, K - four * 4); ++j) {\n    ", o,
             "[r * K + four * 4 + j] = ", four == "vec4" ? "" : "float16_t", "(y[j]);\n  }\n}\n",
             prologue(),
             "void main() {\n  const uint r = gl_WorkGroupID.x;\n  if (!has_row(r)) return;\n"
             "  const uint lane = lane_index();\n  fetch_stage(r, lane);\n  stage(r, lane);\n}\n");
}

// The output's fours to put_x(); past the end zeros.
std::string TapeWriter::staging() const {
  const int value = tape_.outputs[0].value;
  return cat("  if (!SUMS_ROW) return;\n  [[unroll]] for (uint i = 0; i < HELD", base_,
             "; ++i) {\n", "    const uint four = lane + i * SUM_LANES;\n    vec4 y;\n",
             "    [[unroll]] for (uint j = 0; j < 4; ++j) {\n",
             "      const uint c = min(four * 4 + j, K - 1);\n", slice({value}, "K", true),
             "      y[j] = four * 4 + j < K ? ", name(value), " : 0.0;\n    }\n",
             "    if (four * 4 < K) put_x(four, y);\n  }\n");
}

}  // namespace split::vulkan
