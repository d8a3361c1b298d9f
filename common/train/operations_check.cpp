#include "train/operations_check.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"

namespace split::train {
namespace {

constexpr int64_t kHeight = 16, kWidth = 24, kCount = kHeight * kWidth;
constexpr float kApart = 0.005f;  // numbers are, so that a step of kStep changes no order of them
constexpr float kStep = 1e-3f, kFirst = 0.2f;
constexpr int64_t kOrderOfX = 101, kOrderOfZ = 247;

struct Operation {
  std::string name;
  Tensor y;
};

struct Inputs {
  Tensor x = input("x", DType::kF32, {kHeight, kWidth});
  Tensor z = input("z", DType::kF32, {kHeight, kWidth});
  Tensor index = input("index", DType::kI32, {kHeight});  // row numbers
};

std::vector<Operation> pointwise(const Inputs& in) {
  std::vector<Operation> all;
#define UNARY(name, ...) all.push_back({#name, unary(Op::k_##name, in.x)});
#define BINARY(name, ...) all.push_back({#name, binary(Op::k_##name, in.x, in.z)});
#include "tensor/ops.def"
  return all;
}
std::vector<Operation> others(const Inputs& in) {
  const auto& [x, z, index] = in;
  std::vector<Operation> all;
#define REDUCE(name, ...)                                               \
  all.push_back({"rows' " #name, reduce(Op::k_reduce_##name, x, {1})}); \
  all.push_back({"columns' " #name, reduce(Op::k_reduce_##name, x * z, {0})});
#include "tensor/ops.def"
  all.push_back({"matmul", matmul(x, transpose(z, 0, 1))});
  all.push_back({"matmul of columns", matmul(transpose(x, 0, 1), z)});
  all.push_back({"softmax", softmax(x, 1)});
  all.push_back({"layer norm", normalise(x, {1}, 1e-5f)});
  all.push_back({"RMS norm", rms_normalise(x, {1}, 1e-5f)});
  all.push_back({"attention", attend(x, z, x, 0.2f, nullptr)});
  all.push_back({"cross-entropy", cross_entropy(x, index)});
  all.push_back({"take", take(x, index)});
  all.push_back({"put", put_add(x, index, kHeight)});
  all.push_back({"select", select(x > z, x * 2.0f, z)});
  all.push_back(
      {"slice and concatenate", concatenate(std::vector{slice(x, 1, 3, 20, 2), flip(x, {1})}, 1)});
  return all;
}

// Numbers from `first` on in an order that a factor gives.
std::vector<float> numbers(int64_t factor, float first) {
  std::vector<float> all;
  for (int64_t i = 0; i < kCount; ++i) {
    all.push_back(first + kApart * static_cast<float>(i * factor % kCount));
  }
  return all;
}

void fill(array::Store& store) {
  const Dims dims{kHeight, kWidth};
  store.add("x", dims).floats = numbers(kOrderOfX, kFirst);
  store.add("z", dims).floats = numbers(kOrderOfZ, kFirst + kApart / 2);
  std::vector<int32_t>& index = store.add_numbers("index", {kHeight}).numbers;
  for (int32_t i = 0; i < kHeight; ++i) index[static_cast<size_t>(i)] = i * 5 % 12;
}

// Numbers that are no multiples of one another: what a gradient is of is the result by these.
float weight_of(size_t i, size_t n) {
  return 2 * static_cast<float>(i) / static_cast<float>(n) - 1;
}
Tensor weights(const Dims& dims) {
  const int64_t n = count_of(dims);
  return reshape(iota(n), dims) * (2 / static_cast<float>(n)) - 1.0f;
}
// The step's direction.
float along(size_t i) { return static_cast<float>(i * 29 % 7) / 3 - 1; }

[[noreturn]] void refuse(const std::string& name, double want, double have,
                         const array::Runtime& runtime) {
  throw Error(ErrorKind::kDevice, cat("[operations] ", name, ": expected ", want, ", got ", have,
                                      " on ", runtime.name()));
}

void check(array::Runtime& runtime, const Tensor& x, const std::vector<Operation>& all) {
  array::Graph graph;
  for (const Operation& one : all) {
    const std::vector<Tensor> ys{one.y}, xs{x}, dys{weights(one.y.dims())};
    graph.outputs.push_back({one.name, one.y});
    graph.outputs.push_back({one.name + "'s gradient", autograd::grad(ys, xs, dys)[0]});
  }
  array::Runtime plain(1u);
  array::Store reference, store;
  fill(reference);
  fill(store);
  array::Plan expected(plain, graph, reference, false), got(runtime, graph, store);
  expected.run();
  got.run();
  std::vector<double> slopes;  // along the step, by the gradients
  for (const NamedOutput& output : graph.outputs) {
    const auto want = expected.output(output.name), have = got.output(output.name);
    double slope = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      const double size = std::abs(static_cast<double>(want[i]));
      if (!(std::abs(static_cast<double>(want[i]) - have[i]) <= 1e-4 * (1 + size))) {
        refuse(output.name, want[i], have[i], runtime);
      }
      slope += static_cast<double>(have[i]) * along(i);
    }
    slopes.push_back(slope);
  }
  // The weighted sum of each operation's results, a step away.
  const auto sums = [&](float step) {
    std::vector<float>& to = store.at("x").floats;
    const std::vector<float> from = numbers(kOrderOfX, kFirst);
    for (size_t i = 0; i < to.size(); ++i) to[i] = from[i] + step * along(i);
    got.run();
    std::vector<double> found;
    for (const Operation& one : all) {
      const auto y = got.output(one.name);
      double sum = 0;
      for (size_t i = 0; i < y.size(); ++i)
        sum += y[i] * static_cast<double>(weight_of(i, y.size()));
      found.push_back(sum);
    }
    return found;
  };
  const std::vector<double> above = sums(kStep), below = sums(-kStep);
  for (size_t i = 0; i < all.size(); ++i) {
    const double slope = (above[i] - below[i]) / (2 * kStep), gradient = slopes[2 * i + 1];
    if (!(std::abs(slope - gradient) <= 0.02 * (1 + std::abs(slope)))) {
      refuse("the slope of " + all[i].name, slope, gradient, runtime);
    }
  }
}

}  // namespace

size_t check_operations(array::Runtime& runtime) {
  const Inputs in;
  const std::vector<Operation> each = pointwise(in);
  std::vector<Operation> all = others(in);
  const size_t count = each.size() + all.size();
  // Their sum is one kernel, and its gradient another: a GPU's driver takes its time for each.
  Tensor sum = 0.0f;
  for (const Operation& one : each) sum = sum + one.y;
  all.push_back({"pointwise operations", sum});
  try {
    check(runtime, in.x, all);
  } catch (const Error&) {
    check(runtime, in.x, each);  // says which
    throw;
  }
  return count;
}

}  // namespace split::train
