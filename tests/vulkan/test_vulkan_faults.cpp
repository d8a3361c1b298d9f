// A Vulkan device that is lost, or has no memory, at any call: the text stays what it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>

#include "array/plan.h"
#include "autograd/functions.h"
#include "base/error.h"
#include "run/text/generate.h"
#include "support/golden_model.h"
#include "vulkan_faults.h"

namespace split::test {
namespace {

struct Told {
  std::vector<int32_t> tokens;
  bool on_cpu = false;  // no Vulkan device was made
  std::string said;
};

// Load, prompt, generate, as a program does.
Told tell(const Golden& golden) {
  Told told;
  testing::internal::CaptureStderr();
  {
    std::unique_ptr<Device> device;
    try {
      device = make_vulkan_device("any");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDevice) << error.what();
      told.on_cpu = true;
      device = make_cpu_device(1);
    }
    const ModelConfig& config = golden.model->config();
    Shard shard(*device, *golden.model, golden.weights(), options_for(*golden.model));
    Batcher batcher(shard);
    LocalForward forward(batcher);
    GenerateOptions options;
    options.max_tokens = 4;
    options.sampling.seed = 3;
    options.ignore_end = true;
    const std::vector<int32_t> prompt{7, 1, 30, 22, 9};
    told.tokens = generate(forward, config, nullptr, prompt, options, {}).tokens;
  }
  told.said = testing::internal::GetCapturedStderr();
  return told;
}

constexpr size_t kFewer = 3;  // a load of lavapipe takes seconds

class VulkanFault : public testing::Test {
 protected:
  void SetUp() override {
    set_vulkan_faults({});
    ASSERT_FALSE(list_vulkan_devices().empty()) << "no Vulkan driver: nothing would be tested";
    undisturbed_ = tell(golden_).tokens;
    calls_ = vulkan_calls();
    ASSERT_EQ(vulkan_objects(), 0);
  }
  void TearDown() override { set_vulkan_faults({}); }

  // Fails the first or the last call of every third place in the program; SPLIT_LONG: every call,
  // or 100 of one place: a device that is polled is called as often as there is time.
  std::vector<int64_t> places(bool last) const {
    constexpr int kMost = 100;
    std::map<const void*, int64_t> found;
    std::map<const void*, int> times;
    std::vector<int64_t> all;
    for (size_t n = 0; n < calls_.size(); ++n) {
      const auto at = static_cast<int64_t>(n);
      if (!found.try_emplace(calls_[n], at).second && last) found[calls_[n]] = at;
      if (++times[calls_[n]] <= kMost) all.push_back(at);
    }
    if (std::getenv("SPLIT_LONG") != nullptr) return all;
    all.clear();
    for (const auto& [place, at] : found) all.push_back(at);
    std::sort(all.begin(), all.end());
    size_t n = last ? 0 : 1;  // the two tests have different ones
    std::erase_if(all, [&](int64_t) { return n++ % kFewer != 0; });
    return all;
  }
  void expect_same_text(const VulkanFaults& faults) {
    SCOPED_TRACE(cat("call ", faults.at, " of ", calls_.size(), faults.for_good ? " and on" : "",
                     faults.memory ? ", memory" : ", lost"));
    set_vulkan_faults(faults);
    const Told told = tell(golden_);
    EXPECT_EQ(told.tokens, undisturbed_);
    EXPECT_EQ(vulkan_objects(), 0);
    if (told.on_cpu) return;
    EXPECT_LE(std::count(told.said.begin(), told.said.end(), '\n'), 2) << told.said;
  }

  const Golden golden_{"rand-a"};
  std::vector<int32_t> undisturbed_;
  std::vector<const void*> calls_;
};

TEST_F(VulkanFault, InAnyCallLeavesTheTextTheSame) {
  bool memory = false;
  for (const int64_t at : places(true)) {
    expect_same_text({at, false, memory = !memory});
    if (HasFailure()) return;
  }
  std::cout << places(true).size() << " of " << calls_.size() << " calls\n";
}

TEST_F(VulkanFault, FromAnyCallOnFallsBackToTheCpu) {
  bool memory = true;
  for (const int64_t at : places(false)) {
    expect_same_text({at, true, memory = !memory});
    if (HasFailure()) return;
  }
}

// Two steps of a plan that writes its state; a fault is an error of the device, and frees all.
TEST(VulkanPlan, TellsACallThatFailsAndLeavesNothing) {
  ASSERT_FALSE(list_vulkan_devices().empty()) << "no Vulkan driver: nothing would be tested";
  const auto two_steps = [] {
    array::Runtime runtime(DeviceOptions{.device = "vulkan"});
    array::Store store;
    store.add("x", {2, 2}, true).floats = {1, 2, 3, 4};
    store.add("i", {1}).floats = {1};
    const Tensor x = input("x", DType::kF32, {2, 2});
    const Tensor row = take(x, input("i", DType::kF32, {1}));
    array::Plan plan(runtime, {{{"y", sum(row)}}, {{"x", matmul(x, x) + row}}}, store);
    plan.run();
    store.at("i").floats[0] = 0;
    plan.run();
    return std::pair(plan.output("y")[0], store.read("x").floats);
  };
  testing::internal::CaptureStderr();
  set_vulkan_faults({});
  const auto undisturbed = two_steps();
  std::map<const void*, int64_t> places;
  const std::vector<const void*> calls = vulkan_calls();
  for (size_t n = 0; n < calls.size(); ++n) places[calls[n]] = static_cast<int64_t>(n);
  size_t told = 0;
  bool memory = false;
  for (const auto& [place, at] : places) {
    set_vulkan_faults({at, false, memory = !memory});
    try {
      EXPECT_EQ(two_steps(), undisturbed) << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDevice) << error.what();
      ++told;
    }
    EXPECT_EQ(vulkan_objects(), 0) << at;
  }
  set_vulkan_faults({});
  testing::internal::GetCapturedStderr();
  EXPECT_GT(told, places.size() / 2);
}

}  // namespace
}  // namespace split::test
