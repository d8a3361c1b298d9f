// Plans of the tensor library: what is fused, written in place or shared among threads changes no
// bit; gradients are the slopes of what they differentiate.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <numeric>
#include <random>
#include <unordered_set>

#include "array/plan.h"
#include "autograd/functions.h"
#include "autograd/grad.h"
#include "base/error.h"
#include "compile/compile.h"

namespace split::array {
namespace {

std::vector<float> values(const Plan& plan, std::string_view name) {
  const auto got = plan.output(name);
  return {got.begin(), got.end()};
}

std::vector<float> evaluated(const Tensor& tensor, Store& store, bool fuse = true,
                             unsigned threads = 1) {
  Runtime runtime(threads);
  Plan plan(runtime, {{{"y", tensor}}, {}}, store, fuse);
  plan.run();
  return values(plan, "y");
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// The first Vulkan device, if there is one.
std::unique_ptr<Runtime> vulkan_runtime() {
  for (const ListedDevice& one : list_devices()) {
    if (!one.usable || !one.name.starts_with("vulkan")) continue;
    return std::make_unique<Runtime>(DeviceOptions{.device = one.name});
  }
  return nullptr;
}

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// A graph of smooth ops over leaves with random shapes, and its sum.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    for (int i = 0; i < 3; ++i) {
      const std::string name = cat("x", i);
      const Dims dims{size(), size(), size()};
      Store::Entry& entry = store.add(name, dims);
      for (float& value : entry.floats) value = normal_(random_);
      leaves.push_back(input(name, DType::kF32, dims));
      made_.push_back(leaves.back());
    }
    for (int i = 0; i < 14; ++i) made_.push_back(step());
    Tensor all = 0.0f;
    for (size_t i = made_.size() - 4; i < made_.size(); ++i) all = all + mean(tanh(made_[i]));
    result = all;
  }

  Store store;
  std::vector<Tensor> leaves;
  Tensor result = 0.0f;

 private:
  int64_t size() { return std::uniform_int_distribution<int64_t>(1, 20)(random_); }
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  Tensor step() {
    const Tensor& x = made_[below(made_.size())];
    const auto axes = static_cast<int64_t>(x.dims().size());
    const auto axis = static_cast<int64_t>(below(x.dims().size()));
    const int64_t n = x.dims()[static_cast<size_t>(axis)];
    switch (below(14)) {
      case 0:
        return tanh(x);
      case 1:
        return gelu(x) * 0.5f + sigmoid(x);
      case 2:
        return x - mean(x, {axis}, true);
      case 3:
        return softmax(x, axis);
      case 4:
        return normalise(x, {-1}, 1e-2f);
      case 5:
        return transpose(x, axis, axes - 1);
      case 6:
        return slice(x, axis, n / 3, n, n > 4 ? 2 : 1);
      case 7: {
        Dims before(x.dims().size(), 0), behind = before;
        before[static_cast<size_t>(axis)] = 2;
        behind[0] = 1;
        return pad(x, before, behind, 0.25f);
      }
      case 8:
        return reshape(x, {-1, x.dims().back(), 1});
      case 9: {
        const Tensor rows = reshape(x, {-1, x.dims().back()});
        return unsqueeze(matmul(rows, transpose(rows, 0, 1)) * (1.0f / 16), 0);
      }
      case 10:
        return reshape(x * sum(x, {axis}, true) * 0.1f, x.dims());
      case 11: {
        const std::vector<Tensor> parts{x, flip(x, {axis})};
        return x.dims()[static_cast<size_t>(axis)] < 40 ? concatenate(parts, axis) : x;
      }
      case 12:
        return select(x > 0.0f, x * 2.0f, square(x) + 2.0f * x);
      default: {
        const Tensor index = input("i", DType::kI32, {3});
        if (store.find("i") == nullptr) store.add_numbers("i", {3});
        return take(x, index) + exp(neg(square(take(x, index))));
      }
    }
  }

  std::mt19937_64 random_;
  std::normal_distribution<float> normal_;
  std::vector<Tensor> made_;
};

TEST(Array, FusingAndThreadsChangeNoBitOfRandomGraphs) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomGraph graph(seed);
    const std::vector<Tensor> outputs{graph.result};
    const auto gradients = autograd::grad(outputs, graph.leaves);
    Graph all{{{"y", graph.result}}, {}};
    for (size_t i = 0; i < gradients.size(); ++i)
      all.outputs.push_back({cat("g", i), gradients[i]});
    Runtime one(1), five(5);
    Plan fused(one, all, graph.store), plain(one, all, graph.store, false);
    Plan shared(five, all, graph.store);
    for (Plan* plan : {&fused, &plain, &shared}) plan->run();
    shared.run();
    for (const NamedOutput& output : all.outputs) {
      ASSERT_TRUE(same_bits(values(fused, output.name), values(plain, output.name))) << seed;
      ASSERT_TRUE(same_bits(values(fused, output.name), values(shared, output.name))) << seed;
    }
  }
}

// Along a random direction; in floats, hence the tolerance.
TEST(Array, GradientsAreSlopesOfRandomGraphs) {
  size_t steep = 0;
  for (uint64_t seed = 100; seed < 150; ++seed) {
    RandomGraph graph(seed);
    const std::vector<Tensor> outputs{graph.result};
    const auto gradients = autograd::grad(outputs, graph.leaves);
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    double expected = 0;
    std::vector<std::vector<float>> base, along;
    for (size_t i = 0; i < graph.leaves.size(); ++i) {
      const auto g = evaluated(gradients[i], graph.store);
      base.push_back(graph.store.at(cat("x", i)).floats);
      along.emplace_back(g.size());
      for (size_t k = 0; k < g.size(); ++k) {
        along[i][k] = normal(random);
        expected += static_cast<double>(g[k]) * along[i][k];
      }
    }
    const auto at = [&](float h) {
      for (size_t i = 0; i < base.size(); ++i) {
        auto& x = graph.store.at(cat("x", i)).floats;
        for (size_t k = 0; k < x.size(); ++k) x[k] = base[i][k] + h * along[i][k];
      }
      return static_cast<double>(evaluated(graph.result, graph.store)[0]);
    };
    constexpr float kH = 1e-3f;
    const double slope = (at(kH) - at(-kH)) / (2 * kH);
    EXPECT_NEAR(slope, expected, 3e-3 + 0.02 * std::abs(expected)) << seed;
    steep += std::abs(expected) > 0.02 ? 1 : 0;
  }
  EXPECT_GT(steep, 25u);  // else nothing is compared
}

// --- State

Tensor leaf(Store& store, const std::string& name, std::vector<float> floats, bool state = false) {
  const Dims dims{static_cast<int64_t>(floats.size())};
  store.add(name, dims, state).floats = std::move(floats);
  return input(name, DType::kF32, dims);
}

TEST(Array, WritesStateInPlaceOnlyBehindItsLastReader) {
  Runtime runtime(2);
  Store store;
  const Tensor x = leaf(store, "x", {1, 2, 3}, true);
  const Tensor next = x * 10.0f;
  // Kernels read the old value, backwards too, and the new one.
  const Graph graph{{{"before", matmul(reshape(flip(x, {0}), {1, 3}), reshape(x, {3, 1}))},
                     {"after", flip(next, {0})},
                     {"late", flip(next, {0}) + x}},
                    {{"x", next}}};
  Plan plan(runtime, graph, store);
  plan.run();
  EXPECT_EQ(values(plan, "before"), std::vector<float>{10});
  EXPECT_EQ(values(plan, "after"), (std::vector<float>{30, 20, 10}));
  EXPECT_EQ(values(plan, "late"), (std::vector<float>{31, 22, 13}));
  EXPECT_EQ(store.at("x").floats, (std::vector<float>{10, 20, 30}));
  plan.run();
  EXPECT_EQ(values(plan, "late"), (std::vector<float>{310, 220, 130}));
  EXPECT_EQ(store.at("x").floats, (std::vector<float>{100, 200, 300}));
}

TEST(Array, SwapsStateThatReadsEachOther) {
  Runtime runtime(1);
  Store store;
  const Tensor a = leaf(store, "a", {1, 2}, true), b = leaf(store, "b", {3, 4}, true);
  Plan plan(runtime, {{}, {{"a", b * 1.0f}, {"b", a * 1.0f}}}, store);
  plan.run();
  EXPECT_EQ(store.at("a").floats, (std::vector<float>{3, 4}));
  EXPECT_EQ(store.at("b").floats, (std::vector<float>{1, 2}));
}

TEST(Array, RefusesToWriteWhatIsNoStateByItsName) {
  Runtime runtime(1);
  Store store;
  const Tensor x = leaf(store, "frozen", {1, 2});
  const auto refused = message_of([&] { Plan(runtime, {{}, {{"frozen", x + 1.0f}}}, store); });
  EXPECT_EQ(refused, "[array] 'frozen' is written by a step, but is none of its state");
  EXPECT_EQ(message_of([&] {
              Plan(runtime, {{{"y", input("absent", DType::kF32, {2})}}, {}}, store);
            }),
            "[array] 'absent': expected F32 [2], got none");
}

TEST(Array, RefusesIndicesOutsideOfTheTable) {
  Store store;
  const Tensor table = reshape(leaf(store, "t", {1, 2, 3, 4}), {2, 2});
  const Tensor index = leaf(store, "i", {2});
  EXPECT_EQ(message_of([&] { evaluated(take(table, index), store); }),
            "[array] expected an index below 2, got 2");
}

// --- Graphs

TEST(Array, SaysWhatWouldDoAtTheWrongLine) {
  const Tensor x = input("x", DType::kF32, {2, 3}), z = input("z", DType::kF32, {4, 3});
  EXPECT_EQ(message_of([&] { x + z; }),
            "[add] expected shapes that are equal or broadcast, got [2, 3] and [4, 3]");
  EXPECT_EQ(message_of([&] { matmul(unsqueeze(x, 0), z); }),
            "[matmul] expected [..., R, K] and [..., K, M], got [1, 2, 3] and [4, 3]");
  EXPECT_EQ(message_of([&] {
              reshape(x, {4, -1});
            }),
            "[reshape] expected as many elements as [4, -1], got [2, 3]");
  EXPECT_EQ(message_of([&] { sum(x, {2}); }), "[sum] expected an axis like 2, got [2, 3]");
  EXPECT_EQ(message_of([&] {
              permute(x, {0, 0});
            }),
            "[permute] expected each axis once, got [0, 0]");
}

TEST(Array, IsRefusedWhereRowsOfAStepAreCompiled) {
  const Tensor x = input("x", DType::kF32, {kRows, 3});
  EXPECT_EQ(message_of([&] { select(x, x, 0.0f); }),
            "[select] expected sizes that are known, got [-1, 3]");
  EXPECT_NE(message_of([&] {
              compile("p", {{"y", reshape(input("x", DType::kF32, {2, 3}), {6})}}, {});
            }),
            "");
}

// Freed and planned by loops: recursion would end in the stack's guard.
TEST(Array, TakesLongChains) {
  Store store;
  Tensor x = leaf(store, "x", {0, 1});
  const Tensor first = x;
  for (int i = 0; i < 20000; ++i) x = x + 0.5f;
  const std::vector<Tensor> outputs{x}, inputs{first};
  const Tensor slope = autograd::grad(outputs, inputs)[0];
  EXPECT_EQ(evaluated(slope, store), (std::vector<float>{1, 1}));
  EXPECT_EQ(evaluated(reshape(x, {2, 1}), store), (std::vector<float>{10000, 10001}));
}

// Parts of a step of training: chains that meet, reductions, products and views.
TEST(Array, FusesAndPlansTwentyThousandNodesInASecond) {
  Store store;
  Runtime runtime(1);
  store.add("x", {8, 8}, true);
  const Tensor first = input("x", DType::kF32, {8, 8});
  Tensor x = first;
  constexpr int kBlocks = 700;
  for (int i = 0; i < kBlocks; ++i) {
    const Tensor normed = normalise(x, {1}, 1e-5f);
    x = x + matmul(gelu(normed), softmax(transpose(normed, 0, 1), -1)) * 0.1f;
  }
  const std::vector<Tensor> outputs{sum(x)}, inputs{first};
  const Tensor slope = autograd::grad(outputs, inputs)[0];
  const array::Graph graph{{{"loss", outputs[0]}}, {{"x", first - slope * 0.1f}}};
  std::unordered_set<const Node*> nodes;
  for (std::vector<const Node*> left{graph.updates[0].tensor.node().get()}; !left.empty();) {
    const Node* const node = left.back();
    left.pop_back();
    for (const auto& in : node->inputs) {
      if (nodes.insert(in.get()).second) left.push_back(in.get());
    }
  }
  EXPECT_GT(nodes.size(), 20000u);
  const auto begin = std::clock();  // time of this process alone: others run beside it
  const Plan plan(runtime, graph, store);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  EXPECT_LT(seconds * 20000 / static_cast<double>(nodes.size()),
            std::getenv("SPLIT_SLOW") == nullptr ? 1 : 20);
  RecordProperty("seconds", cat(seconds));
}

TEST(Array, MakesSoftmaxAndItsScaleOneKernel) {
  Store store;
  Runtime runtime(1);
  store.add("x", {4, 32});
  const Tensor y = softmax(input("x", DType::kF32, {4, 32}) * 2.0f, -1);
  Plan plan(runtime, {{{"y", y}}, {}}, store);
  EXPECT_EQ(
      plan.text(),
      "rows [4, 32]; 0 = x; 1 = 2; 2 = mul 0 1; 3 = max 2; 4 = sub 2 3; 5 = exp 4; 6 = sum 5; "
      "7 = div 5 6 -> %1\n");
}

TEST(Array, SumsLongTensorsTheSameByAnyThreads) {
  Store store;
  auto& x = store.add("x", {100001}).floats;
  std::mt19937 random(1);
  for (float& value : x) value = static_cast<float>(random() % 1000) * 0.001f;
  double exact = 0;
  for (const float value : x) exact += value;
  const Tensor y = sum(input("x", DType::kF32, {100001}));
  const auto one = evaluated(y, store);
  EXPECT_NEAR(one[0], exact, 0.02);
  EXPECT_TRUE(same_bits(one, evaluated(y, store, true, 5)));
}

// --- Vulkan

class Vulkan : public testing::Test {
 protected:
  void SetUp() override {
    runtime_ = vulkan_runtime();
    if (!runtime_) GTEST_SKIP() << "no Vulkan device";
    ASSERT_NE(runtime_->gpu, nullptr);
  }
  std::unique_ptr<Runtime> runtime_;
};

TEST_F(Vulkan, HasTheNumbersOfTheCpuInRandomGraphsAndOneSetOfBits) {
  const uint64_t count = std::getenv("SPLIT_LONG") != nullptr ? 60 : 4;
  for (uint64_t seed = 0; seed < count; ++seed) {
    RandomGraph graph(seed), same(seed);
    const std::vector<Tensor> outputs{graph.result};
    const auto gradients = autograd::grad(outputs, graph.leaves);
    Graph all{{{"y", graph.result}}, {}};
    for (size_t i = 0; i < gradients.size(); ++i)
      all.outputs.push_back({cat("g", i), gradients[i]});
    Runtime one(1);
    Plan plan(*runtime_, all, graph.store), expected(one, all, same.store);
    plan.run();
    expected.run();
    for (const NamedOutput& output : all.outputs) {
      const auto got = values(plan, output.name), want = values(expected, output.name);
      ASSERT_EQ(got.size(), want.size());
      float largest = 1e-3f;
      for (const float value : want) largest = std::max(largest, std::abs(value));
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(got[i], want[i], 2e-4f * largest) << seed << output.name;
    }
    const auto first = values(plan, "g0");
    plan.run();
    EXPECT_TRUE(same_bits(values(plan, "g0"), first)) << seed;
  }
}

TEST_F(Vulkan, WritesStateInPlaceOnlyBehindItsLastReader) {
  Store store;
  const Tensor x = leaf(store, "x", {1, 2, 3}, true);
  const Tensor next = x * 10.0f;
  const Graph graph{{{"before", sum(flip(x, {0}) * x)},
                     {"after", flip(next, {0})},
                     {"late", flip(next, {0}) + x}},
                    {{"x", next}}};
  Plan plan(*runtime_, graph, store);
  plan.run();
  EXPECT_EQ(values(plan, "before"), std::vector<float>{10});
  EXPECT_EQ(values(plan, "late"), (std::vector<float>{31, 22, 13}));
  EXPECT_EQ(store.read("x").floats, (std::vector<float>{10, 20, 30}));
  plan.run();
  EXPECT_EQ(store.read("x").floats, (std::vector<float>{100, 200, 300}));
  // Changes of the host in between are seen.
  store.at("x").floats = {1, 0, 1};
  plan.run();
  EXPECT_EQ(values(plan, "after"), (std::vector<float>{10, 0, 10}));
}

// Sums whose rows several workgroups share, and numbers of a row that are written in their place.
TEST_F(Vulkan, SumsFewLongRows) {
  constexpr int64_t kLong = 100001;
  Store store;
  auto& floats = store.add("x", {2, kLong}).floats;
  std::mt19937 random(1);
  for (float& value : floats) value = static_cast<float>(random() % 1000) * 0.001f;
  std::vector<double> exact(2);
  for (size_t i = 0; i < floats.size(); ++i) exact[i / kLong] += floats[i];
  const Tensor x = input("x", DType::kF32, {2, kLong}), y = sum(x, {1}, true);
  const Tensor state = leaf(store, "s", {1, 2}, true);
  Plan plan(*runtime_,
            {{{"y", y}, {"share", sum(x / y, {1})}, {"one", softmax(x, 1)}},
             {{"s", state + reshape(y, {2})}}},
            store);
  plan.run();
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(values(plan, "y")[i], exact[i], 0.02);
    EXPECT_NEAR(values(plan, "share")[i], 1, 1e-5);
    EXPECT_NEAR(store.read("s").floats[i], exact[i] + 1 + static_cast<double>(i), 0.02);
  }
  const auto one = values(plan, "one");
  EXPECT_NEAR(std::accumulate(one.begin(), one.begin() + kLong, 0.0), 1, 1e-5);
}

TEST_F(Vulkan, TakesAndAddsRowsAndRefusesIndicesOutsideOfTheTable) {
  Store store;
  const Tensor table = reshape(leaf(store, "t", {1, 2, 3, 4}), {2, 2});
  const Tensor index = leaf(store, "i", {1, 0, 1});
  const Tensor taken = take(table, index);
  const std::vector<Tensor> outputs{sum(taken)}, inputs{table};
  Plan plan(*runtime_, {{{"taken", taken}, {"g", autograd::grad(outputs, inputs)[0]}}, {}}, store);
  plan.run();
  EXPECT_EQ(values(plan, "taken"), (std::vector<float>{3, 4, 1, 2, 3, 4}));
  EXPECT_EQ(values(plan, "g"), (std::vector<float>{1, 1, 2, 2}));
  for (const float bad : {2.0f, -1.0f, std::nanf("")}) {
    store.at("i").floats = {0, bad, 1};
    EXPECT_THROW(plan.run(), Error) << bad;
  }
  store.at("i").floats = {0, 1, 1};
  plan.run();
  EXPECT_EQ(values(plan, "g"), (std::vector<float>{1, 1, 2, 2}));
}

}  // namespace
}  // namespace split::array
