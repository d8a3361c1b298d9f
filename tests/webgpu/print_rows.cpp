// print_rows FOLDER: writes for each row of the op table a kernel in WGSL, inputs, and what the CPU
// makes of them. A reduction's row joins two numbers.
#include <bit>
#include <functional>
#include <random>

#include "array/row_loops.h"
#include "device/cpu/kernels/kernels.h"
#include "device/kernel_values.h"
#include "tensor/wgsl.h"
#include "webgpu/cases.h"

namespace split::test {
namespace {

using Numbers = std::vector<uint32_t>;  // bits

struct Inputs {
  Numbers x, z, c;
};

// Without NaN, of which WGSL says nothing, and without subnormal numbers, which it may take for 0.
Inputs floats() {
  Inputs in;
  const auto left_out = [](float x) { return std::isnan(x) || std::fpclassify(x) == FP_SUBNORMAL; };
  const auto add = [&](float x, float z) {
    if (left_out(x) || left_out(z)) return;
    in.x.push_back(std::bit_cast<uint32_t>(x));
    in.z.push_back(std::bit_cast<uint32_t>(z));
    in.c.push_back(in.c.size() % 2);
  };
  for (const float x : kSpecial) {
    for (const float z : kSpecial) add(x, z);
  }
  const std::vector<float> xs = values(30000, 1, false), zs = ordinary(30000, 2);
  for (size_t i = 0; i < xs.size(); ++i) add(xs[i], 8 * zs[i]);
  for (float x = -110; x < 110; x += 0.0131f) add(x, 0.37f);
  return in;
}

Inputs wholes() {
  Inputs in;
  std::mt19937 random(3);
  const int32_t special[] = {0, 1, -1, 2, 31, 32, -32, 33, 1000003, 2147483647, -2147483647 - 1};
  const auto add = [&](int32_t x, int32_t z) {
    in.x.push_back(static_cast<uint32_t>(x));
    in.z.push_back(static_cast<uint32_t>(z));
    in.c.push_back(in.c.size() % 2);
  };
  for (const int32_t x : special) {
    for (const int32_t z : special) add(x, z);
  }
  for (int i = 0; i < 2000; ++i) {
    add(static_cast<int32_t>(random()), static_cast<int32_t>(random() % 80) - 40);
  }
  return in;
}

std::string kernel_of(std::string_view forward, std::string_view type, std::string_view result,
                      bool truth) {
  // A reduction's acc is x, and its x is z.
  const bool joins = forward.find("acc") != forward.npos;
  const std::string_view x = joins ? "acc" : "x", z = joins ? "x" : "z";
  return cat(op_functions_wgsl(forward), "@group(0) @binding(0) var<storage, read> xs: array<",
             type, ">;\n@group(0) @binding(1) var<storage, read> zs: array<", type,
             ">;\n@group(0) @binding(2) var<storage, read> cs: array<i32>;\n"
             "@group(0) @binding(3) var<storage, read_write> ys: array<",
             result,
             ">;\n@compute @workgroup_size(64)\n"
             "fn main(@builtin(global_invocation_id) at: vec3<u32>) {\n"
             "  let i = at.x;\n  if (i >= arrayLength(&ys)) { return; }\n  let ",
             x, " = xs[i];\n  let ", z,
             " = zs[i];\n  let c = cs[i];\n  ys[i] = ", truth ? "i32(" : "", wgsl_of(forward),
             truth ? ")" : "", ";\n}\n");
}

void print(Cases& cases) {
  const CpuKernels& kernels = choose_kernels("");
  const auto add_all = [&](std::string_view type, const Inputs& in, DType dtype) {
    const array::RowLoops& loops = array::row_loops(dtype);
    const Json inputs[] = {cases.file(in.x), cases.file(in.z), cases.file(in.c)};
    const size_t n = in.x.size();
    const auto* x = reinterpret_cast<const float*>(in.x.data());
    const auto* z = reinterpret_cast<const float*>(in.z.data());
    for (size_t i = 0; i < static_cast<size_t>(Op::k_constant); ++i) {
      const Op op = static_cast<Op>(i);
      const OpInfo& info = op_info(op);
      const bool whole = dtype == DType::kI32, joins = info.kind == OpKind::kReduce;
      const bool any = info.kind == OpKind::kCompare || info.kind == OpKind::kTernary;
      const std::string_view forward = whole && !whole_info(op).forward.empty()
                                           ? whole_info(op).forward
                                       : !whole || any ? info.forward
                                                       : std::string_view();
      const array::RowLoops::Loop loop = joins ? loops.join[op] : loops.pointwise[op];
      if (forward.empty()) continue;
      std::function<void(void*)> compute;
      if (loop != nullptr) {
        compute = [&](void* y) { loop(in.x.data(), in.z.data(), in.c.data(), y, n); };
      } else if (!whole && kernels.unary[op] != nullptr) {
        compute = [&](void* y) { kernels.unary[op](x, static_cast<float*>(y), n); };
      } else if (!whole && kernels.binary[op] != nullptr) {
        compute = [&](void* y) { kernels.binary[op](x, z, static_cast<float*>(y), n); };
      } else {
        throw std::logic_error(cat("no loop of ", info.name));
      }
      const bool truth = info.kind == OpKind::kCompare;
      const std::string_view result = truth ? "i32" : type;
      Numbers made(n);
      compute(made.data());
      cases.add({{"name", cat(type, joins ? ".reduce_" : ".", info.name)},
                 {"kernel", {{"text", kernel_of(forward, type, result, truth)}}},
                 {"buffers", {inputs[0], inputs[1], inputs[2], cases.result(made)}},
                 {"groups", {(n + 63) / 64}},
                 {"whole", result == "i32"}});
    }
  };
  add_all("f32", floats(), DType::kF32);
  add_all("i32", wholes(), DType::kI32);
}

}  // namespace
}  // namespace split::test

int main(int argc, char** argv) {
  return split::test::print_cases(argc, argv, "rows", split::test::print);
}
