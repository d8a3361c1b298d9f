// The ops as data: an enum and a row of facts for each, derived from ops.def. Fusion and devices
// read an op's kind and its text, never its name.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace split {

enum class Op : uint8_t {
#define UNARY(name, ...) k_##name,
#define BINARY(name, ...) k_##name,
#define REDUCE(name, ...) k_reduce_##name,
#define VIEW(name) k_##name,
#define KERNEL(name, flag) k_##name,
#include "tensor/ops.def"
  // Leaves of a graph: not rows of the table, they compute nothing.
  k_constant,
  k_input,
  k_weight,
};

enum class OpKind : uint8_t { kUnary, kBinary, kReduce, kView, kKernel, kLeaf };

struct OpInfo {
  std::string_view name;
  OpKind kind = OpKind::kLeaf;
  std::string_view forward;                 // GLSL; for a reduction the combination of acc and x
  std::string_view start;                   // reductions: the neutral element
  std::string_view gradient_x, gradient_z;  // GLSL
  bool epilogue = false;                    // kernels: pointwise ops may join the result
};

const OpInfo& op_info(Op op);
// All rows of the table, in its order; op_table()[static_cast<size_t>(op)] is op_info(op).
std::span<const OpInfo> op_table();
// The FUNC rows as GLSL functions, in order.
std::string_view op_functions_glsl();

inline bool is_pointwise(Op op) {
  return op_info(op).kind == OpKind::kUnary || op_info(op).kind == OpKind::kBinary;
}

}  // namespace split
