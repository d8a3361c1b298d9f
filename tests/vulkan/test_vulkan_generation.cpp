// A long answer on a Vulkan device beside the CPU's in f32: of GPT-2's shapes where the device is a
// GPU, of a small model's on a software one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "bench/support/random_model.h"
#include "run/forward.h"

namespace split {
namespace {

constexpr size_t kTokens = 1000, kFewTokens = 150;  // more than a split of keys and a page

struct Side {
  Side(Device& device, const bench::RandomModel& model, Profile profile)
      : shard(device, model.model(), model.weights(), options(model.model(), profile)),
        batcher(shard),
        forward(batcher) {}
  static ShardOptions options(const Model& model, Profile profile) {
    ShardOptions options;
    options.profile = profile;
    options.kv_bytes = kv_bytes_for(model, {}, profile, 1);
    return options;
  }
  Shard shard;
  Batcher batcher;
  LocalForward forward;
};

size_t largest(std::span<const float> values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

// `error`: of a logit, relative to the largest, that is stated for the profile. Where the reference
// has two logits closer than two of them, either may come first.
void expect_same_tokens(Device& device, const std::string& size, Profile profile, double error) {
  // Few where a software device takes a minute for all, but with SPLIT_LONG.
  const bool all = device.is_gpu() || std::getenv("SPLIT_LONG") != nullptr;
  const size_t count = all ? kTokens : kFewTokens;
  const bench::RandomModel model(size, profile == Profile::kF16 ? DType::kF16 : DType::kF32);
  const auto cpu_device = make_cpu_device(0);
  Side gpu(device, model, profile), cpu(*cpu_device, model, Profile::kF32);
  std::vector<int32_t> tokens = bench::random_tokens(model.config(), 20);
  uint32_t past = 0;
  double worst = 0;
  size_t ties = 0;
  for (size_t i = 0; i < count; ++i) {
    const SequenceRows rows{
        .past = past, .tokens = tokens, .phase = i == 0 ? Phase::kPrompt : Phase::kGenerate};
    const std::span<const float> got = gpu.forward.run(rows);
    const std::span<const float> want = cpu.forward.run(rows);
    past += static_cast<uint32_t>(tokens.size());
    double scale = 0, difference = 0;
    for (size_t v = 0; v < want.size(); ++v) {
      scale = std::max(scale, std::abs(double{want[v]}));
      difference = std::max(difference, std::abs(double{got[v]} - double{want[v]}));
    }
    ASSERT_LE(difference, error * scale) << "token " << i;
    worst = std::max(worst, difference / scale);
    const size_t chosen = largest(want), other = largest(got);
    if (other != chosen) {
      ASSERT_LE(want[chosen] - want[other], 2 * error * scale) << "token " << i;
      ++ties;
    }
    tokens = {static_cast<int32_t>(chosen)};
  }
  std::cout << size << " " << profile_name(profile) << ": " << count - ties << " of " << count
            << " tokens are the CPU's, the others closer than the error; largest error " << worst
            << "\n";
}

TEST(VulkanGeneration, TokensAreTheCpus) {
  ASSERT_FALSE(list_vulkan_devices().empty()) << "no Vulkan driver: nothing would be tested";
  const auto device = make_device({"vulkan", 0});
  const std::string size = device->is_gpu() ? "gpt2" : "tiny";
  expect_same_tokens(*device, size, Profile::kF32, 1e-4);
  expect_same_tokens(*device, size, Profile::kF16, 1e-2);
}

}  // namespace
}  // namespace split
