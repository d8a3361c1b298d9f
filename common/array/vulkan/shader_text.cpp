#include "array/vulkan/shader_text.h"

#include <bit>
#include <limits>

#include "base/error.h"
#include "compile/tape_text.h"
#include "tensor/types.h"

namespace split::array {
namespace {

// GLSL's own may lose a NaN.
constexpr std::string_view kNanKept =
    "float most(float a, float b) { return a != a ? a : b != b ? b : max(a, b); }\n"
    "float least(float a, float b) { return a != a ? a : b != b ? b : min(a, b); }\n"
    "#define max most\n#define min least\n";

// Functions that rows of whole numbers use beside GLSL's.
constexpr std::string_view kWholes =
    "int quotient(int x, int z) { return z == 0 ? 0 : z == -1 ? -x : x / z; }\n";
constexpr std::string_view kWides =
    "int64_t quotient(int64_t x, int64_t z) { return z == 0L ? 0L : z == -1L ? -x : x / z; }\n";
constexpr std::string_view kWholeNames =
    "#define ZERO 0\n#define ONE 1\n#define BITS 32\n#define LOWEST (-2147483647 - 1)\n"
    "#define HIGHEST 2147483647\n";
constexpr std::string_view kWideNames =
    "#define ZERO 0L\n#define ONE 1L\n#define BITS 64L\n"
    "#define LOWEST (-9223372036854775807L - 1L)\n#define HIGHEST 9223372036854775807L\n";
constexpr std::string_view kNoNames =
    "#undef ZERO\n#undef ONE\n#undef BITS\n#undef LOWEST\n#undef HIGHEST\n";
// To nearest even, by whole numbers: a device's own rounding is its affair.
constexpr std::string_view kRounding =
    "float round_bf16(float x) {\n"
    "  uint bits = floatBitsToUint(x);\n"
    "  if ((bits & 0x7fffffffu) > 0x7f800000u) return x;\n"
    "  return uintBitsToFloat((bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u);\n"
    "}\n"
    "float round_f16(float x) {\n"
    "  uint bits = floatBitsToUint(x), sign = bits & 0x80000000u, size = bits & 0x7fffffffu;\n"
    "  if (size >= 0x7f800000u) return x;\n"
    "  if (size >= 0x477ff000u) return uintBitsToFloat(sign | 0x7f800000u);\n"
    "  int lost = size < 0x38800000u ? 13 + 113 - int(size >> 23) : 13;\n"  // bits of the mantissa
    "  if (lost > 24) return uintBitsToFloat(sign);\n"
    "  uint whole = (size & 0x7fffffu) | 0x800000u, one = 1u << uint(lost);\n"
    "  uint rounded = (whole + (one >> 1) - 1u + ((whole >> uint(lost)) & 1u)) & ~(one - 1u);\n"
    "  float y = float(rounded) * uintBitsToFloat((max(size >> 23, 1u) - 23u) << 23);\n"
    "  return sign != 0u ? -y : y;\n"
    "}\n";

}  // namespace

std::string ShaderText::constant(const std::string& type, const std::vector<uint32_t>& bits) {
  const size_t i = words_.size();
  words_.insert(words_.end(), bits.begin(), bits.end());
  std::string name = cat("c", i);
  const auto word = [&](size_t k) { return cat("b0[piece.first + ", i + k, "]"); };
  words_text_ += cat(type, " ", name, ";\n");
  reads_ +=
      cat("  ", name, " = ",
          type == "float"    ? cat("intBitsToFloat(", word(0), ")")
          : bits.size() == 2 ? cat("int64_t(", word(1), ") << 32 | int64_t(uint(", word(0), "))")
                             : word(0),
          ";\n");
  return name;
}

std::string ShaderText::type_of(DType dtype) {
  const DType type = computing(dtype);
  wide_ = wide_ || type == DType::kI64;
  return std::string(kGlsl.type(type));
}
std::string ShaderText::part_of(DType dtype) {
  parts_.insert(computing(dtype));
  return cat("part_", type_of(dtype));
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
  numbers_.emplace_back(value, constant("int", {static_cast<uint32_t>(value)}));
  return numbers_.back().second;
}

std::string ShaderText::real(double value, DType dtype) {
  const std::string type = type_of(dtype);
  if (type == "float") return constant(type, {std::bit_cast<uint32_t>(static_cast<float>(value))});
  const auto whole = static_cast<uint64_t>(static_cast<int64_t>(value));
  if (type == "int") return constant(type, {static_cast<uint32_t>(whole)});
  return constant(type, {static_cast<uint32_t>(whole), static_cast<uint32_t>(whole >> 32)});
}

std::string ShaderText::place(int buffer, const std::string& index, int64_t offset) {
  return cat(number(bindings_.of(buffer).offset + offset), " + (", index, ")");
}

std::string ShaderText::accessor(const Bound& bound, std::string_view verb, std::string_view result,
                                 std::string_view parameter, std::string_view before,
                                 std::string_view behind) {
  for (uint32_t i = 0; i < bound.pieces; ++i) types_[bound.binding + i] = bound.type;
  std::string name = cat(verb, bound.binding);
  if (!defined_.insert(name).second) return name;
  const int64_t piece = bindings_.piece / (bound.type == DType::kI64 ? 2 : 1);
  head_ += cat(result, " ", name, "(int at", parameter, ") {\n");
  for (uint32_t i = 0; i < bound.pieces; ++i) {
    head_ += cat(i + 1 < bound.pieces ? cat("  if (at < ", (i + 1) * piece, ") ") : "  ", before,
                 "b", bound.binding + i, "[at - ", i * piece, "]", behind, "\n");
  }
  head_ += "}\n";
  return name;
}

std::string ShaderText::get(int buffer, const std::string& at) {
  const Bound bound = bindings_.of(buffer);
  return cat(accessor(bound, "get", type_of(bound.type), "", "return ", ";"), "(", at, ")");
}

std::string ShaderText::put(int buffer, const std::string& at, const std::string& value) {
  const Bound bound = bindings_.of(buffer);
  return cat(
      accessor(bound, "put", "void", cat(", ", type_of(bound.type), " x"), "{ ", " = x; return; }"),
      "(", at, ", ", value, ");\n");
}

std::string ShaderText::declare_load(const std::string& name, const Operand& operand) {
  const Access& access = operand.access;
  const std::string type = type_of(operand.dtype);
  std::string text = cat(type, " ", name, "(int e) {\n");
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
                  real(access.fill, operand.dtype), ";\n");
    }
    text += cat("  at += i * ", number(axis.stride), ";\n");
  }
  const std::string value = operand.from == Operand::From::kNumber
                                ? real(operand.number, operand.dtype)
                            : buffer ? get(operand.buffer, "at")
                                     : cat(type, "(at)");
  head_ += text + cat("  return ", value, ";\n}\n");
  return name;
}

void ShaderText::define(const std::string& name, DType type, const std::string& text) {
  if (!defined_.insert(name).second) return;
  if (type == DType::kF32) {
    functions_ += text;
  } else {
    whole_functions_ += cat(type == DType::kI64 ? kWideNames : kWholeNames, text, kNoNames);
  }
}

std::string ShaderText::function_of(Op op, DType dtype) {
  const DType type = computing(dtype);
  type_of(type);
  std::string name = function_name(op, type);
  define(name, type, function_text(op, type));
  return name;
}

std::string ShaderText::start_of(Op op, DType type) {
  if (computing(type) == DType::kF32) return std::string(op_info(op).start);
  const std::string of = type_of(type), name = cat("start_", op_info(op).name, "_", of);
  define(name, computing(type), kGlsl.function(of, name, "", whole_info(op).start));
  return name + "()";
}

std::string ShaderText::cast_of(const std::string& x, DType from, DType to) {
  const std::string type = type_of(to);
  if (to == DType::kBool) return cat("(", x, " != ", type_of(from), "(0) ? 1 : 0)");
  if (to == DType::kU8) return cat("(int(", x, ") & 255)");
  const std::string same = cat(type, "(", x, ")");
  return to == DType::kF16    ? cat("round_f16(", same, ")")
         : to == DType::kBF16 ? cat("round_bf16(", same, ")")
                              : same;
}

std::string ShaderText::line(size_t i, const std::string& row) {
  const TapeValue& value = kernel_.tape.values[i];
  std::string made;
  if (value.loads()) {
    const Operand& operand = value.load;
    if (operand.from == Operand::From::kNumber && !operand.access.bounded()) {
      made = real(operand.number, operand.dtype);
    } else {
      if (loads_.insert(i).second) declare_load(cat("load", i), operand);
      made = cat("load", i, "(", value.uniform ? "0" : value.full ? "e" : row, ")");
    }
  } else if (value.op == Op::k_detach) {
    made = cat("t", value.x);
  } else if (value.reduces()) {  // a reduction of one element
    made = cat(function_of(value.op, value.dtype), "(", start_of(value.op, value.dtype), ", t",
               value.x, ")");
  } else if (value.op == Op::k_cast) {
    made = cast_of(cat("t", value.x), kernel_.tape[value.x].dtype, value.dtype);
  } else {
    made = cat(function_of(value.op, kernel_.tape[value.x].dtype), "(",
               value.c >= 0 ? cat("t", value.c, ", ") : "", "t", value.x,
               value.z >= 0 ? cat(", t", value.z) : "", ")");
  }
  return cat("      const ", type_of(value.dtype), " t", i, " = ", made, ";\n");
}

std::string ShaderText::statements(std::vector<bool> made, const std::vector<int>& wanted,
                                   const std::string& row) {
  const std::vector<bool> needed = kernel_.tape.needed(wanted, made);
  std::string text;
  for (size_t i = 0; i < needed.size(); ++i) {
    if (needed[i]) text += line(i, row);
  }
  return text;
}

std::string ShaderText::store(const TapeOutput& output, const std::string& index) {
  return cat("    ", put(output.slot, place(output.slot, index), cat("t", output.value)));
}

Dispatch ShaderText::finish(int64_t group, const std::string& body) {
  std::string text =
      cat("#version 460\n#extension GL_EXT_control_flow_attributes : require\n",
          wide_ ? "#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require\n" : "",
          "layout(local_size_x = ", group, ") in;\n", words_text_);
  text += "layout(push_constant) uniform Piece { uint first; uint b; uint c; uint d; } piece;\n";
  for (uint32_t i = 0; i < bindings_.count; ++i) {
    const auto known = types_.find(i);
    const DType type = i == 0 ? DType::kI32 : known == types_.end() ? DType::kF32 : known->second;
    text += kGlsl.buffer(i, "", cat("b", i), type_of(type));
  }
  for (const DType type : parts_) {
    text += cat("shared ", type_of(type), " ", part_of(type), "[", group, "];\n");
  }
  const std::string rest =
      cat(kWholes, wide_ ? kWides : "", whole_functions_, kNanKept, functions_,
          "#undef max\n#undef min\n", head_, "void main() {\n", reads_, body, "}\n");
  if (rest.find("_f(") != rest.npos || rest.find("pick(") != rest.npos) {
    text += op_functions_for(rest);
  }
  if (rest.find("round_") != rest.npos) text += kRounding;
  text += rest;
  return {.text = std::move(text), .words = std::move(words_), .wide = wide_};
}

}  // namespace split::array
