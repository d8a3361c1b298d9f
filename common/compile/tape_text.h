// The text of tapes' ops in a language of GPUs. What a language says in its own way is a row here,
// so that another one is another row.
#pragma once

#include <string>
#include <string_view>

#include "compile/tape.h"

namespace split {

struct Language {
  // Names the types in which numbers are computed with: F32, I32, I64.
  std::string_view (*type)(DType computing);
  // "float x", and a function of one expression.
  std::string (*parameter)(std::string_view type, std::string_view name);
  std::string (*function)(std::string_view type, std::string_view name, std::string_view parameters,
                          std::string_view body);
  // An array of a binding; `access`: "readonly ", "writeonly " or nothing.
  std::string (*buffer)(uint32_t binding, std::string_view access, std::string_view name,
                        std::string_view type);
  // 1 or 0.
  std::string (*number)(std::string_view truth);
};
extern const Language kGlsl, kWgsl;

// An op as a function of numbers of one type: of x and z, or of a truth c too, or of acc and x,
// which it combines.
std::string function_name(Op op, DType computing = DType::kF32, const Language& language = kGlsl);
std::string function_text(Op op, DType computing = DType::kF32, const Language& language = kGlsl);

}  // namespace split
