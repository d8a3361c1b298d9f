// Steps beside values: the same bits, and what a step refuses; random numbers, the same everywhere;
// and the program of the README.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numeric>
#include <sstream>

#include "array/plan.h"
#include "array/value.h"
#include "autograd/grad.h"
#include "autograd/indexing.h"
#include "autograd/reductions.h"
#include "base/error.h"
#include "base/file.h"
#include "train/step.h"

namespace split {
namespace {

using array::Runtime;

std::string refusal_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Tensor loss_of(const Tensor& x, const Tensor& w, const Tensor& v, const Tensor& targets) {
  return mean(cross_entropy(matmul(gelu(matmul(x, w)), v), targets));
}
std::vector<float> numbers(size_t n, int seed) {
  std::vector<float> all;
  for (size_t i = 0; i < n; ++i) {
    all.push_back(std::sin(static_cast<float>(i) * 1.7f + static_cast<float>(seed)));
  }
  return all;
}
TensorView view(const std::vector<float>& of, const Dims& dims) {
  return {DType::kF32, dims, std::as_bytes(std::span(of))};
}

// PyTorch's loop and a plan that is replayed.
TEST(Step, HasTheBitsOfEagerTensors) {
  const Dims xs{16, 8}, ws{8, 12}, vs{12, 5};
  const std::vector<float> x = numbers(128, 0), w = numbers(96, 1), v = numbers(60, 2);
  std::vector<int32_t> t(16);
  for (size_t i = 0; i < t.size(); ++i) t[i] = static_cast<int32_t>(i % 5);
  constexpr float kRate = 0.25f;
  constexpr int kSteps = 6;

  Runtime eager(1u);
  const Value ex = eager.tensor(view(x, xs)),
              et = eager.tensor({DType::kI32, {16}, std::as_bytes(std::span(t))});
  Value ew = eager.tensor(view(w, ws)), ev = eager.tensor(view(v, vs));
  ew.requires_grad_();
  ev.requires_grad_();
  std::vector<double> losses;
  for (int i = 0; i < kSteps; ++i) {
    const Value loss = loss_of(ex, ew, ev, et);
    loss.backward();
    losses.push_back(loss.item());
    const NoGrad none;
    for (Value* each : {&ew, &ev}) {
      each->assign(Tensor(*each) - Tensor(each->grad()) * kRate);
      each->zero_grad();
    }
  }

  for (const unsigned threads : {1u, 3u}) {
    Runtime runtime(threads);
    array::Store store;
    store.add("x", view(x, xs));
    store.add("w", view(w, ws), true);
    store.add("v", view(v, vs), true);
    store.add_numbers("t", {16}).numbers = t;
    const Tensor sw = input("w", DType::kF32, ws), sv = input("v", DType::kF32, vs);
    const Tensor loss = loss_of(input("x", DType::kF32, xs), sw, sv, input("t", DType::kI32, {16}));
    const std::vector<Tensor> ys{loss}, leaves{sw, sv};
    const std::vector<Tensor> grads = autograd::grad(ys, leaves);
    array::Plan plan(
        runtime, {{{"loss", loss}}, {{"w", sw - grads[0] * kRate}, {"v", sv - grads[1] * kRate}}},
        store);
    for (int i = 0; i < kSteps; ++i) {
      plan.run();
      EXPECT_EQ(plan.output("loss")[0], static_cast<float>(losses[static_cast<size_t>(i)])) << i;
    }
    EXPECT_EQ(store.read("w").floats, ew.to_vector());
    EXPECT_EQ(store.read("v").floats, ev.to_vector());
  }
  EXPECT_LT(losses.back(), losses.front());
}

// A plan is made once: what has a shape that is a value cannot be in one.
TEST(Step, RefusesWhatHasAShapeThatIsAValueByItsName) {
  const Tensor x = input("x", DType::kF32, {4, 3}), w = input("w", DType::kF32, {3});
  const auto step = [&](const auto& loss_of) {
    return refusal_of([&] {
      Runtime runtime(1u);
      array::Store store;
      store.add("x", Dims{4, 3});
      store.add("w", Dims{3}, true);
      train::Step(runtime, store, loss_of(x * w), optim::Optimiser({{{{"w", w}}, {.lr = 0.1}}}),
                  {});
    });
  };
  EXPECT_EQ(step([](const Tensor& y) { return sum(y); }), "");
  const auto refused = [&](const char* name, const auto& loss_of) {
    EXPECT_EQ(step(loss_of), cat("[", name,
                                 "] expected tensors with values, as the result's shape is one; "
                                 "got leaves of a step"));
  };
  refused("nonzero", [](const Tensor& y) { return sum(cast(nonzero(y), DType::kF32)); });
  refused("masked_select", [](const Tensor& y) { return sum(masked_select(y, y > 0.0f)); });
  refused("index by a mask", [](const Tensor& y) { return sum(get(y, {y > 0.0f})); });
  // Operations on values are computed at once.
  Runtime rt(1u);
  const Value v = rt.tensor({{0.5, 0}, {-3, 2}});
  EXPECT_EQ(Value(masked_select(v, v > 0.25f)).to_vector(), (std::vector<float>{0.5f, 2}));
  EXPECT_EQ(Value(nonzero(v)).to_vector<int64_t>(), (std::vector<int64_t>{0, 0, 1, 0, 1, 1}));
}

// A million of each, by their moments and by how often each number comes.
TEST(Random, NumbersAreDistributedAsTheyShould) {
  Runtime rt(2u);
  rt.manual_seed(62);
  constexpr int64_t kCount = 1000000;
  const auto moment = [&](const std::vector<float>& of, double centre, int power) {
    double all = 0;
    for (const float x : of) all += std::pow(x - centre, power);
    return all / static_cast<double>(kCount);
  };
  const std::vector<float> u = rt.rand({kCount}).to_vector();
  EXPECT_GE(*std::ranges::min_element(u), 0);
  EXPECT_LT(*std::ranges::max_element(u), 1);
  EXPECT_NEAR(moment(u, 0, 1), 0.5, 0.0012);  // four standard errors, here and below
  EXPECT_NEAR(moment(u, 0.5, 2), 1.0 / 12, 0.0003);
  std::vector<int64_t> bins(100);
  for (const float x : u) ++bins[static_cast<size_t>(x * 100)];
  double chi = 0;
  for (const int64_t bin : bins) chi += std::pow(static_cast<double>(bin) - 1e4, 2) / 1e4;
  EXPECT_LT(chi, 160);  // 99 degrees of freedom: one in 10,000
  EXPECT_GT(chi, 50);

  const std::vector<float> n = rt.randn({kCount}).to_vector();
  EXPECT_NEAR(moment(n, 0, 1), 0, 0.004);
  EXPECT_NEAR(moment(n, 0, 2), 1, 0.006);
  EXPECT_NEAR(moment(n, 0, 3), 0, 0.016);
  EXPECT_NEAR(moment(n, 0, 4), 3, 0.04);
  EXPECT_NEAR(
      static_cast<double>(std::ranges::count_if(n, [](float x) { return x > 1.959964f; })) / kCount,
      0.025, 0.0007);

  const std::vector<int64_t> d = rt.randint(-3, 4, {kCount}).to_vector<int64_t>();
  for (int64_t face = -3; face < 4; ++face) {
    EXPECT_NEAR(static_cast<double>(std::ranges::count(d, face)) / kCount, 1.0 / 7, 0.0015);
  }
  const Value p = expand(rt.tensor({0.3}), {kCount});
  const std::vector<float> b = rt.bernoulli(p).to_vector();
  EXPECT_NEAR(moment(b, 0, 1), 0.3, 0.002);
  EXPECT_EQ(std::ranges::count(b, 0.0f) + std::ranges::count(b, 1.0f), kCount);

  std::vector<int64_t> order = rt.randperm(5000).to_vector<int64_t>();
  double along = 0;  // how far places and numbers go together
  for (size_t i = 0; i < order.size(); ++i) {
    along += (static_cast<double>(i) / 4999 - 0.5) * (static_cast<double>(order[i]) / 4999 - 0.5);
  }
  EXPECT_NEAR(along / 5000 * 12, 0, 0.06);
  std::ranges::sort(order);
  std::vector<int64_t> all(5000);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(order, all);
}

TEST(Random, BitsAreTheSameOnEveryDevice) {
  const std::vector<ListedDevice> devices = list_devices();
  const auto gpu = std::ranges::find_if(devices, [](const ListedDevice& one) {
    return one.usable && one.name.starts_with("vulkan");
  });
  if (gpu == devices.end()) GTEST_SKIP() << "no Vulkan device";
  Runtime cpu("cpu"), other(gpu->name);
  for (Runtime* rt : {&cpu, &other}) rt->manual_seed(9);
  EXPECT_EQ(cpu.rand({1000}).to_vector(), other.rand({1000}).to_vector());
  EXPECT_EQ(cpu.randint(0, 1000, {1000}).to_vector<int64_t>(),
            other.randint(0, 1000, {1000}).to_vector<int64_t>());
  EXPECT_EQ(cpu.randperm(100).to_vector<int64_t>(), other.randperm(100).to_vector<int64_t>());
}

// These lines are the README's, and they run.
TEST(Readme, ProgramIsTheOneThatIsCompiledHere) {
  const std::filesystem::path root = SPLIT_SOURCE_DIR;
  const std::string readme = read_file(root / "common/README.md", 1 << 20),
                    lines = read_file(root / "tests/array/readme_program.inc", 1 << 12);
  EXPECT_NE(readme.find("```cpp\n" + lines + "```\n"), std::string::npos);
  EXPECT_EQ(std::ranges::count(lines, '\n'), 8);
  std::ostringstream text;
  std::streambuf* const before = std::cout.rdbuf(text.rdbuf());
  {
#include "array/readme_program.inc"
  } std::cout.rdbuf(before);
  EXPECT_TRUE(text.str().starts_with("tensor(0.")) << text.str();
  EXPECT_NE(text.str().find("\ntensor(["), std::string::npos) << text.str();
}

}  // namespace
}  // namespace split
