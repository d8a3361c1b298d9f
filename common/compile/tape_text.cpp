#include "compile/tape_text.h"

#include "base/error.h"
#include "tensor/wgsl.h"

namespace split {

const Language kGlsl = {
    [](DType computing) -> std::string_view {
      return computing == DType::kF32 ? "float" : computing == DType::kI64 ? "int64_t" : "int";
    },
    [](std::string_view type, std::string_view name) { return cat(type, " ", name); },
    [](std::string_view type, std::string_view name, std::string_view parameters,
       std::string_view body) {
      return cat(type, " ", name, "(", parameters, ") { ", type, " y = ", body, "; return y; }\n");
    },
    [](uint32_t binding, std::string_view access, std::string_view name, std::string_view type) {
      return cat("layout(set = 0, binding = ", binding, ") ", access, "buffer B", name, " { ", type,
                 " ", name, "[]; };\n");
    },
    [](std::string_view truth) { return cat("(", truth, ") ? 1 : 0"); },
};

const Language kWgsl = {
    [](DType computing) -> std::string_view {
      if (computing == DType::kI64) throw Error(ErrorKind::kDevice, "[webgpu] no I64 in WGSL");
      return computing == DType::kF32 ? "f32" : "i32";
    },
    [](std::string_view type, std::string_view name) { return cat(name, ": ", type); },
    [](std::string_view type, std::string_view name, std::string_view parameters,
       std::string_view body) {
      return cat("fn ", name, "(", parameters, ") -> ", type, " { return ", wgsl_of(body), "; }\n");
    },
    [](uint32_t binding, std::string_view access, std::string_view name, std::string_view type) {
      return cat("@group(0) @binding(", binding, ") var<storage, ",
                 access == "readonly " ? "read" : "read_write", "> ", name, ": array<", type,
                 ">;\n");
    },
    [](std::string_view truth) { return cat("select(0, 1, ", truth, ")"); },
};

std::string function_name(Op op, DType computing, const Language& language) {
  const bool joins = op_info(op).kind == OpKind::kReduce;
  return cat(joins ? "combine_" : "op_", op_info(op).name,
             computing == DType::kF32 ? "" : cat("_", language.type(computing)));
}

std::string function_text(Op op, DType computing, const Language& language) {
  const OpKind kind = op_info(op).kind;
  const bool floats = computing == DType::kF32, compares = kind == OpKind::kCompare;
  const std::string_view body = floats ? op_info(op).forward : whole_info(op).forward;
  CHECK(!body.empty());
  const std::string_view type = language.type(computing), whole = language.type(DType::kI32);
  std::string parameters = language.parameter(type, "x");
  if (kind == OpKind::kReduce) parameters = cat(language.parameter(type, "acc"), ", ", parameters);
  if (kind == OpKind::kTernary) parameters = cat(language.parameter(whole, "c"), ", ", parameters);
  if (kind != OpKind::kReduce && kind != OpKind::kUnary) {
    parameters += cat(", ", language.parameter(type, "z"));
  }
  return language.function(compares ? whole : type, function_name(op, computing, language),
                           parameters, compares ? language.number(body) : body);
}

}  // namespace split
