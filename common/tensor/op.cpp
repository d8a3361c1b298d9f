#include "tensor/op.h"

#include "base/error.h"

namespace split {
namespace {

// NOLINTBEGIN(readability-identifier-naming): words of ops.def
constexpr bool EPILOGUE = true;
constexpr bool PLAIN = false;
// NOLINTEND(readability-identifier-naming)

constexpr OpInfo kTable[] = {
#define UNARY(name, forward, gradient) {#name, OpKind::kUnary, #forward, "", #gradient, "", 1},
#define BINARY(name, forward, gradient_x, gradient_z) \
  {#name, OpKind::kBinary, #forward, "", #gradient_x, #gradient_z, 2},
#define REDUCE(name, start, combine, gradient) \
  {#name, OpKind::kReduce, #combine, #start, #gradient, "", 1},
#define VIEW(name, inputs, attributes) {#name, OpKind::kView, "", "", "", "", inputs, attributes},
#define KERNEL(name, names, numbers, flag) \
  {#name, OpKind::kKernel, "", "", "", "", inputs::name::count, attributes::name::count, flag},
#include "tensor/ops.def"
#define UNARY(name, forward, gradient) {#name, OpKind::kUnary, #forward, "", #gradient, "", 1},
#define BINARY(name, forward, gradient_x, gradient_z) \
  {#name, OpKind::kBinary, #forward, "", #gradient_x, #gradient_z, 2},
#define REDUCE(name, start, combine, gradient) \
  {#name, OpKind::kReduce, #combine, #start, #gradient, "", 1},
#define WHOLE_UNARY(name, forward) {#name, OpKind::kUnary, "", "", "", "", 1},
#define WHOLE_BINARY(name, forward) {#name, OpKind::kBinary, "", "", "", "", 2},
#define WHOLE_TERNARY(name, forward) {#name, OpKind::kTernary, "", "", "", "", 3},
#define COMPARE(name, forward) {#name, OpKind::kCompare, #forward, "", "", "", 2},
#define TERNARY(name, forward, gradient_x, gradient_z) \
  {#name, OpKind::kTernary, #forward, "", #gradient_x, #gradient_z, 3},
#define VIEW(name, inputs) {#name, OpKind::kView, "", "", "", "", inputs},
#define KERNEL(name, inputs) {#name, OpKind::kKernel, "", "", "", "", inputs},
#include "tensor/library.def"
};

// Ops without a row of the table.
constexpr OpInfo kOthers[] = {{"constant", OpKind::kLeaf},
                              {"input", OpKind::kLeaf},
                              {"weight", OpKind::kLeaf},
                              {"group", OpKind::kGroup}};

}  // namespace

const OpInfo& op_info(Op op) {
  const size_t index = static_cast<size_t>(op);
  if (index < std::size(kTable)) return kTable[index];
  CHECK(index - std::size(kTable) < std::size(kOthers));
  return kOthers[index - std::size(kTable)];
}

const WholeInfo& whole_info(Op op) {
  static const ByOp<WholeInfo> all = [] {
    ByOp<WholeInfo> made;
#define WHOLE(name, forward) made[Op::k_##name] = {#forward};
#define WHOLE_UNARY(name, forward) made[Op::k_##name] = {#forward};
#define WHOLE_BINARY(name, forward) made[Op::k_##name] = {#forward};
#define WHOLE_TERNARY(name, forward) made[Op::k_##name] = {#forward};
#define WHOLE_REDUCE(name, start, combine) made[Op::k_reduce_##name] = {#combine, #start};
#define COMPARE(name, forward) made[Op::k_##name] = {#forward};
#define TERNARY(name, forward, dx, dz) made[Op::k_##name] = {#forward};
#include "tensor/library.def"
    return made;
  }();
  return all[op];
}

std::string_view op_functions_glsl() {
  return "#define pick(c, a, b) ((c) ? (a) : (b))\n"
#define FUNC(type, name, parameters, ...) #type " " #name #parameters " " #__VA_ARGS__ "\n"
#include "tensor/ops.def"
      ;
}
std::string_view library_functions_glsl() {
  return ""
#define FUNC(type, name, parameters, ...) #type " " #name #parameters " " #__VA_ARGS__ "\n"
#include "tensor/library.def"
      ;
}
std::string op_functions_for(std::string_view text) {
  const std::string all = cat(op_functions_glsl(), library_functions_glsl());
  std::string needed;
  for (size_t end = all.size(); end > 0;) {  // functions call those before them
    const size_t before = all.rfind('\n', end - 2), begin = before == all.npos ? 0 : before + 1;
    const std::string line = all.substr(begin, end - begin);
    const size_t name = line.find(' ') + 1;
    const std::string call = line.substr(name, line.find('(') + 1 - name);
    if (text.find(call) != text.npos || needed.find(call) != needed.npos) needed.insert(0, line);
    end = begin;
  }
  return needed;
}

}  // namespace split
