#include "tensor/op.h"

#include "base/error.h"

namespace split {
namespace {

constexpr bool EPILOGUE = true;
constexpr bool PLAIN = false;

constexpr OpInfo kTable[] = {
#define UNARY(name, forward, gradient) {#name, OpKind::kUnary, #forward, "", #gradient, "", false},
#define BINARY(name, forward, gradient_x, gradient_z) \
  {#name, OpKind::kBinary, #forward, "", #gradient_x, #gradient_z, false},
#define REDUCE(name, start, combine, gradient) \
  {#name, OpKind::kReduce, #combine, #start, #gradient, "", false},
#define VIEW(name) {#name, OpKind::kView, "", "", "", "", false},
#define KERNEL(name, flag) {#name, OpKind::kKernel, "", "", "", "", flag},
#include "tensor/ops.def"
};

constexpr OpInfo kLeaves[] = {{"constant", OpKind::kLeaf, "", "", "", "", false},
                              {"input", OpKind::kLeaf, "", "", "", "", false},
                              {"weight", OpKind::kLeaf, "", "", "", "", false}};

}  // namespace

const OpInfo& op_info(Op op) {
  const size_t index = static_cast<size_t>(op);
  if (index < std::size(kTable)) return kTable[index];
  CHECK(index - std::size(kTable) < std::size(kLeaves));
  return kLeaves[index - std::size(kTable)];
}

std::span<const OpInfo> op_table() { return kTable; }

std::string_view op_functions_glsl() {
  return ""
#define FUNC(type, name, parameters, ...) #type " " #name #parameters " " #__VA_ARGS__ "\n"
#include "tensor/ops.def"
      ;
}

}  // namespace split
