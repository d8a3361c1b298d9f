#include "array/vulkan/shader_text.h"

#include <bit>
#include <limits>

#include "base/error.h"

namespace split::array {
namespace {

// GLSL's own may lose a NaN.
constexpr std::string_view kNanKept =
    "float most(float a, float b) { return a != a ? a : b != b ? b : max(a, b); }\n"
    "float least(float a, float b) { return a != a ? a : b != b ? b : min(a, b); }\n"
    "#define max most\n#define min least\n";

}  // namespace

bool reduces(const Value& value) { return op_info(value.op).kind == OpKind::kReduce; }

std::string ShaderText::constant(const char* type, uint32_t bits) {
  const size_t i = words_.size();
  words_.push_back(bits);
  std::string name = cat("c", i);
  const std::string word = cat("b0.v[piece.first + ", i, "]");
  words_text_ += cat(type, " ", name, ";\n");
  reads_ += cat("  ", name, " = ", *type == 'f' ? cat("intBitsToFloat(", word, ")") : word, ";\n");
  return name;
}

std::string ShaderText::number(int64_t value) {
  if (value > std::numeric_limits<int32_t>::max() / 2 ||
      value < std::numeric_limits<int32_t>::min() / 2) {
    throw Error(ErrorKind::kDevice,
                cat("[array] a kernel of a GPU counts to 2^30 elements, got ", value));
  }
  for (const auto& [known, name] : numbers_) {
    if (known == value) return name;
  }
  numbers_.emplace_back(value, constant("int", static_cast<uint32_t>(value)));
  return numbers_.back().second;
}

std::string ShaderText::real(float value) {
  return constant("float", std::bit_cast<uint32_t>(value));
}

std::string ShaderText::place(int buffer, const std::string& index, int64_t offset) {
  return cat(number(bindings_.of(buffer).offset + offset), " + (", index, ")");
}

std::string ShaderText::get(int buffer, const std::string& at) {
  const Bound bound = bindings_.of(buffer);
  if (gets_.insert(bound.binding).second) {
    head_ += cat("float get", bound.binding, "(int at) {\n");
    for (uint32_t i = 0; i + 1 < bound.pieces; ++i) {
      head_ += cat("  if (at < ", (i + 1) * bindings_.piece, ") return float(b", bound.binding + i,
                   ".v[at - ", i * bindings_.piece, "]);\n");
    }
    head_ += cat("  return float(b", bound.binding + bound.pieces - 1, ".v[at - ",
                 (bound.pieces - 1) * bindings_.piece, "]);\n}\n");
  }
  touch(bound);
  return cat("get", bound.binding, "(", at, ")");
}

std::string ShaderText::put(int buffer, const std::string& at, const std::string& value) {
  const Bound bound = bindings_.of(buffer);
  if (puts_.insert(bound.binding).second) {
    const char* const type = bound.numbers ? "int" : "float";
    head_ += cat("void put", bound.binding, "(int at, ", type, " x) {\n");
    for (uint32_t i = 0; i + 1 < bound.pieces; ++i) {
      head_ += cat("  if (at < ", (i + 1) * bindings_.piece, ") { b", bound.binding + i, ".v[at - ",
                   i * bindings_.piece, "] = x; return; }\n");
    }
    head_ += cat("  b", bound.binding + bound.pieces - 1, ".v[at - ",
                 (bound.pieces - 1) * bindings_.piece, "] = x;\n}\n");
  }
  touch(bound);
  return cat("put", bound.binding, "(", at, ", ", value, ");\n");
}

void ShaderText::touch(const Bound& bound) {
  if (bound.numbers) number_bindings_.insert(bound.binding);
}

std::string ShaderText::declare_load(const std::string& name, const Operand& operand) {
  const Access& access = operand.access;
  std::string text = cat("float ", name, "(int e) {\n");
  const bool buffer = operand.from == Operand::From::kBuffer;
  const int64_t base = buffer ? bindings_.of(operand.buffer).offset : 0;
  text += cat("  int at = ", number(base + access.offset), ", i = 0;\n");
  for (size_t i = access.axes.size(); i-- > 0;) {
    const Axis& axis = access.axes[i];
    if (i == 0) {
      text += "  i = e;\n";
    } else {
      const std::string size = number(axis.size);
      text += cat("  i = e % ", size, "; e /= ", size, ";\n");
    }
    if (!axis.whole()) {
      text += cat("  if (i < ", number(axis.from), " || i >= ", number(axis.to), ") return ",
                  real(access.fill), ";\n");
    }
    text += cat("  at += i * ", number(axis.stride), ";\n");
  }
  const std::string value = operand.from == Operand::From::kNumber ? real(operand.number)
                            : buffer                               ? get(operand.buffer, "at")
                                                                   : std::string("float(at)");
  head_ += text + cat("  return ", value, ";\n}\n");
  return name;
}

std::string ShaderText::join_of(Op op) {
  const OpInfo& info = op_info(op);
  if (ops_.insert(op).second) {
    functions_ +=
        cat("float join_", info.name, "(float acc, float x) { return ", info.forward, "; }\n");
  }
  return cat("join_", info.name);
}

std::string ShaderText::start_of(Op op) { return std::string(op_info(op).start); }

std::string ShaderText::function_of(Op op) {
  const OpInfo& info = op_info(op);
  if (ops_.insert(op).second) {
    const char* const parameters = info.kind == OpKind::kUnary     ? "float x"
                                   : info.kind == OpKind::kTernary ? "float c, float x, float z"
                                                                   : "float x, float z";
    functions_ += cat("float op_", info.name, "(", parameters, ") { return ",
                      info.kind == OpKind::kCompare ? "(" : "", info.forward,
                      info.kind == OpKind::kCompare ? ") ? 1.0 : 0.0" : "", "; }\n");
  }
  return cat("op_", info.name);
}

std::string ShaderText::line(size_t i, const std::string& row) {
  const Value& value = kernel_.tape[i];
  std::string made;
  if (value.op == Op::k_input) {
    const Operand& operand = value.operand;
    if (operand.from == Operand::From::kNumber && !operand.access.bounded()) {
      made = real(operand.number);
    } else {
      if (loads_.insert(i).second) declare_load(cat("load", i), operand);
      made = cat("load", i, "(", value.uniform ? "0" : value.full ? "e" : row, ")");
    }
  } else if (value.op == Op::k_detach) {
    made = cat("t", value.x);
  } else if (reduces(value)) {  // of one element
    made = cat(join_of(value.op), "(", start_of(value.op), ", t", value.x, ")");
  } else {
    made = cat(function_of(value.op), "(", value.c >= 0 ? cat("t", value.c, ", ") : "", "t",
               value.x, value.z >= 0 ? cat(", t", value.z) : "", ")");
  }
  return cat("      const float t", i, " = ", made, ";\n");
}

std::string ShaderText::statements(std::vector<bool> made, const std::vector<int>& wanted,
                                   const std::string& row) {
  std::vector<bool> needed(kernel_.tape.size());
  for (const int i : wanted) needed[static_cast<size_t>(i)] = true;
  for (size_t i = needed.size(); i-- > 0;) {
    if (!needed[i] || made[i]) continue;
    const Value& value = kernel_.tape[i];
    for (const int in : {value.c, value.x, value.z}) {
      if (in >= 0) needed[static_cast<size_t>(in)] = true;
    }
  }
  std::string text;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i] && !made[i]) text += line(i, row);
  }
  return text;
}

std::string ShaderText::store(const Kernel::Output& output, const std::string& index) {
  return cat("    ", put(output.buffer, place(output.buffer, index), cat("t", output.value)));
}

Dispatch ShaderText::finish(int64_t group, const std::string& body) {
  std::string text = cat("#version 460\n#extension GL_EXT_control_flow_attributes : require\n",
                         "layout(local_size_x = ", group, ") in;\n", words_text_);
  text += "layout(push_constant) uniform Piece { uint first; uint b; uint c; uint d; } piece;\n";
  for (uint32_t i = 0; i < bindings_.count; ++i) {
    text += cat("layout(set = 0, binding = ", i, ") buffer B", i, " { ",
                i == 0 || number_bindings_.count(i) != 0 ? "int" : "float", " v[]; } b", i, ";\n");
  }
  const std::string rest = cat(kNanKept, functions_, "#undef max\n#undef min\n", head_,
                               "void main() {\n", reads_, body, "}\n");
  if (rest.find("_f(") != rest.npos) text += op_functions_glsl();  // which take a while to read
  text += rest;
  return {.text = std::move(text), .words = std::move(words_)};
}

}  // namespace split::array
