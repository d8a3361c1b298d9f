// The ops as data: an enum and a row of facts for each, derived from ops.def and library.def.
// Fusion and devices read an op's kind and its text, never its name; no table of theirs depends on
// the order of rows. Rows of library.def are those of the tensor library alone (array/).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace split {

enum class Op : uint8_t {
#define UNARY(name, ...) k_##name,
#define BINARY(name, ...) k_##name,
#define REDUCE(name, ...) k_reduce_##name,
#define VIEW(name, ...) k_##name,
#define KERNEL(name, ...) k_##name,
#include "tensor/ops.def"
#define UNARY(name, ...) k_##name,
#define BINARY(name, ...) k_##name,
#define REDUCE(name, ...) k_reduce_##name,
#define COMPARE(name, ...) k_##name,
#define TERNARY(name, ...) k_##name,
#define WHOLE_UNARY(name, ...) k_##name,
#define WHOLE_BINARY(name, ...) k_##name,
#define WHOLE_TERNARY(name, ...) k_##name,
#define VIEW(name, ...) k_##name,
#define KERNEL(name, ...) k_##name,
#include "tensor/library.def"
  // Leaves of a graph: not rows of the table, they compute nothing.
  k_constant,
  k_input,
  k_weight,
  // Pointwise ops and reductions that became one step.
  k_group,
};

enum class OpKind : uint8_t {
  kUnary,
  kBinary,
  kReduce,
  kView,
  kKernel,
  kLeaf,
  kGroup,
  kCompare,  // two numbers, to true or false
  kTernary,
};

// Indices of a kernel's inputs and attributes, by the names in its row: inputs::attention::k_cache,
// attributes::attention::heads; `count` of each.
#define SPLIT_NAMES(...) __VA_OPT__(__VA_ARGS__, )
namespace inputs {
#define KERNEL(name, inputs, ...)               \
  struct name {                                 \
    enum : size_t { SPLIT_NAMES inputs count }; \
  };
#include "tensor/ops.def"
}  // namespace inputs
namespace attributes {
#define KERNEL(name, inputs, attributes, flag)      \
  struct name {                                     \
    enum : size_t { SPLIT_NAMES attributes count }; \
  };
#include "tensor/ops.def"
}  // namespace attributes
#undef SPLIT_NAMES

struct OpInfo {
  std::string_view name;
  OpKind kind = OpKind::kLeaf;
  std::string_view forward = {};  // GLSL; for a reduction the combination of acc and x
  std::string_view start = {};    // reductions: the neutral element
  std::string_view gradient_x = {}, gradient_z = {};  // GLSL
  size_t inputs = 0;
  size_t attributes = 0;  // kernels and views: numbers beside the inputs
  bool epilogue = false;  // kernels: pointwise ops may join the result
  bool floats() const { return !forward.empty(); }
};

// A row for whole numbers: its body and, for a reduction, the neutral element. Empty for ops of F32
// alone.
struct WholeInfo {
  std::string_view forward = {}, start = {};
};
const WholeInfo& whole_info(Op op);

const OpInfo& op_info(Op op);
// A value for each op, found by the op: nothing depends on the order of rows.
template <typename T>
class ByOp {
 public:
  constexpr T& operator[](Op op) { return values_[static_cast<size_t>(op)]; }
  constexpr const T& operator[](Op op) const { return values_[static_cast<size_t>(op)]; }

 private:
  T values_[static_cast<size_t>(Op::k_group) + 1] = {};
};

// The FUNC rows as GLSL functions, in order.
std::string_view op_functions_glsl();
std::string_view library_functions_glsl();
// Returns those of both that a text calls, and that they call, each a line, in order: all of them
// would take a compiler a while to read.
std::string op_functions_for(std::string_view text);

inline bool is_pointwise(Op op) {
  return op_info(op).kind == OpKind::kUnary || op_info(op).kind == OpKind::kBinary;
}

}  // namespace split
