// A long answer on a Vulkan device beside the CPU's in f32, and prompts of any length, whole, in
// parts and beside others: of real shapes where the device is a GPU, of a small model's on a
// software one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <numeric>
#include <random>

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

// The logits of a prompt's `wanted` rows, in parts of at most so many rows, each beside as many
// others as there are `others`.
std::vector<float> logits_of(Shard& shard, std::span<const int32_t> tokens,
                             const std::vector<uint32_t>& wanted,
                             const std::function<uint32_t()>& most, size_t others,
                             std::mt19937& random) {
  KvPages& pages = shard.pages();
  std::vector<SequenceId> ids;
  for (size_t i = 0; i <= others; ++i) ids.push_back(pages.open());
  const Wanted all(wanted);
  const auto count = static_cast<uint32_t>(tokens.size());
  std::vector<float> logits;
  for (uint32_t past = 0; past < count;) {
    const uint32_t here = std::min(count - past, most());
    std::vector<ShardRows> parts{{ids[0],
                                  {.past = past,
                                   .tokens = tokens.subspan(past, here),
                                   .wanted = all.slice(count, past, here)}}};
    for (size_t i = 1; i <= others; ++i) {
      const uint32_t length = pages.length(ids[i]), more = 1 + random() % 8;
      if (length + more > count) continue;
      parts.push_back({ids[i],
                       {.past = length,
                        .tokens = tokens.subspan(random() % (count - more + 1), more),
                        .wanted = Wanted::kNone}});
    }
    for (const ShardRows& part : parts) {
      CHECK(pages.reserve(part.sequence, part.rows.past + part.rows.count()));
    }
    std::vector<float> out(parts[0].rows.wanted_count() * shard.width(Point::head()));
    shard.forward(parts, out.data());
    logits.insert(logits.end(), out.begin(), out.end());
    past += here;
  }
  for (const SequenceId id : ids) pages.close(id);
  return logits;
}

void expect_equal_bits(Device& device, const std::string& size, Profile profile, bool wide,
                       const std::vector<uint32_t>& lengths) {
  SCOPED_TRACE(cat(size, " ", profile_name(profile), wide ? ", wide" : ""));
  constexpr size_t kOthers = 31;
  constexpr uint32_t kRowsOfOthers = 8 * kOthers;
  const bench::RandomModel model(size, profile == Profile::kF32 ? DType::kF32 : DType::kF16, 1,
                                 static_cast<int>(std::ranges::max(lengths)));
  ShardOptions options;
  options.profile = profile;
  options.formats = profile_formats(profile);
  options.wide = wide;
  options.long_rows = kLongRows;
  options.kv_bytes = kv_bytes_for(model.model(), {}, profile, kOthers + 1);
  Shard shard(device, model.model(), model.weights(), options);
  if (device.is_gpu() && profile != Profile::kF32) {
    EXPECT_EQ(shard.long_rows(), kLongRows);
  }
  std::mt19937 random(7);
  for (const uint32_t length : lengths) {
    const std::vector<int32_t> tokens = bench::random_tokens(model.config(), length);
    std::vector<uint32_t> wanted(length);
    std::iota(wanted.begin(), wanted.end(), 0u);
    std::ranges::shuffle(wanted, random);
    wanted.resize(std::min<size_t>(length, 24));
    wanted.back() = length - 1;
    std::ranges::sort(wanted);
    wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
    const auto run = [&](const std::function<uint32_t()>& most, size_t others) {
      return logits_of(shard, tokens, wanted, most, others, random);
    };
    const auto any_of = [&](uint32_t most) {
      return [&random, most] { return 1 + static_cast<uint32_t>(random()) % most; };
    };
    const std::vector<float> whole = run([&] { return shard.long_rows(); }, 0);
    const auto expect_whole = [&](const std::vector<float>& got, const char* how) {
      EXPECT_TRUE(
          std::ranges::equal(std::as_bytes(std::span(got)), std::as_bytes(std::span(whole))))
          << length << how;
    };
    expect_whole(run(any_of(shard.long_rows()), 0), " in parts");
    expect_whole(run(any_of(options.max_rows), 0), " in short parts");
    expect_whole(run(any_of(options.max_rows - kRowsOfOthers), kOthers), " beside others");
  }
}

TEST(VulkanGeneration, APromptsRowsHaveTheirBitsInPartsAndBesideOthers) {
  ASSERT_FALSE(list_vulkan_devices().empty()) << "no Vulkan driver: nothing would be tested";
  const auto device = make_device({"vulkan", 0});
  const std::string size = device->is_gpu() ? "smollm2-135m" : "tiny";
  std::vector<uint32_t> lengths = {1, 17, 90};
  if (device->is_gpu())
    lengths = {1, 2, 9, 16, 31, 64, 100, 128, 200, 256, 300, 511, 513, 700, 1024, 1500, 2047, 2048};
  for (const Profile profile :
       {Profile::kF32, Profile::kF16, Profile::kBF16, Profile::kQ8_0, Profile::kQ4_0}) {
    if (!device->is_gpu() && profile != Profile::kF16) continue;
    expect_equal_bits(*device, size, profile, false, lengths);
    if (device->is_gpu()) expect_equal_bits(*device, size, profile, true, {5, 40, 2048});
  }
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
