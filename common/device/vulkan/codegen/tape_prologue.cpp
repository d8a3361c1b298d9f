// Writes the loads of a matmul's row that a tape makes, all on their way before anything is
// computed.
#include "compile/tape_text.h"
#include "device/vulkan/codegen/tape_glsl.h"
#include "tensor/tensor.h"

namespace split::vulkan {

bool TapeWriter::is_held(size_t i) const {
  const Access::Kind access = load_of(i).access.kind;
  return access == Access::kRowwise || access == Access::kVector || access == Access::kGather;
}

std::string TapeWriter::prologue() const {
  // A lane's loads of the row are on their way before anything is computed.
  std::ostringstream held, loads;
  for (size_t i = 0; i < loads_; ++i) {
    if (!is_held(i)) continue;
    const size_t id = base_ + i;
    held << "float held" << id << "[HELD" << base_ << "];\n";
    loads << load(i, "    ", "K", "const float ") << "    held" << id << "[i] = v" << id << ";\n";
  }
  const std::string row = "  const uint row = piece.row_base + r;\n";
  return cat("const uint HELD", base_, " = (K + SUM_LANES - 1) / SUM_LANES;\n", held.str(),
             "void fetch_stage(uint r, uint lane) {\n  if (!SUMS_ROW) return;\n", row,
             "  [[unroll]] for (uint i = 0; i < HELD", base_,
             "; ++i) {\n    const uint c = min(lane + i * SUM_LANES, K - 1);\n", loads.str(),
             "  }\n}\nvoid stage(uint r, uint lane) {\n", row, row_body("K", true), "}\n");
}

std::string TapeWriter::held_group() const {
  const std::string type = is_half(tape_.outputs[0]) ? "float16_t" : "float";
  return cat("#define K COLUMNS\n#define put_x(c, y) o", base_, "[r * K + (c)] = ", type, "(y)\n",
             prologue(),
             "void main() {\n  const uint r = gl_WorkGroupID.x;\n  if (!has_row(r)) return;\n"
             "  const uint lane = lane_index();\n  fetch_stage(r, lane);\n  stage(r, lane);\n}\n");
}

// The output's elements to put_x().
std::string TapeWriter::staging() const {
  const int value = tape_.outputs[0].value;
  return cat("  FOR_HELD(", base_, ") {\n", slice({value}, "K", true), "    put_x(c, ", name(value),
             ");\n  } END_ROW\n");
}

}  // namespace split::vulkan
