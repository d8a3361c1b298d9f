// Weights are written beside the thread that loads: all of them, where they belong, before what
// they are read from or written to may go.
#include <gtest/gtest.h>

#include <latch>

#include "device/vulkan/runtime/buffers.h"

namespace split::vulkan {
namespace {

// Bytes that tell their place.
std::byte byte_at(size_t job, size_t i) {
  return static_cast<std::byte>(job * 31 + i * 7 + i / 251);
}

WeightWriter::Job job_of(size_t number, size_t unit, size_t count, WeightWriter::Cut cut,
                         std::vector<std::byte>& out) {
  out.assign(unit * count, std::byte{0});
  const auto make = [=](const WeightWriter::Part& part, std::byte* to) {
    for (size_t i = 0; i < part.count; ++i) {
      for (size_t k = 0; k < part.bytes; ++k) {
        *to++ = byte_at(number, (part.first + i) * unit + part.from + k);
      }
    }
  };
  return {make, out.data(), unit, 0, count, cut};
}

TEST(VulkanFiller, WritesEveryUnitOfEveryJob) {
  WeightWriter writer;
  EXPECT_TRUE(writer.done(0));
  const struct {
    size_t unit, count;
    WeightWriter::Cut cut;
  } sizes[] = {{4, 1, {}},
               {4, 100'000, {}},
               {2 << 20, 3, {}},
               {3'000, 1'001, {32}},
               {1, 1, {8}},
               {70'000, 50, {2, 4096}},
               {96, 33'333, {32}},
               {3'200, 300, {128, 1024}},
               {2 << 20, 3, {64, 512}}};
  std::vector<std::vector<std::byte>> out(std::size(sizes));
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < out.size(); ++i) {
    numbers.push_back(writer.begin(job_of(i, sizes[i].unit, sizes[i].count, sizes[i].cut, out[i])));
  }
  writer.wait(numbers[2]);
  EXPECT_TRUE(writer.done(numbers[1]) && writer.done(numbers[2]));
  writer.wait();
  EXPECT_TRUE(writer.done(numbers.back()));
  for (size_t i = 0; i < out.size(); ++i) {
    size_t wrong = 0;
    for (size_t k = 0; k < out[i].size(); ++k) wrong += out[i][k] != byte_at(i, k);
    EXPECT_EQ(wrong, 0u) << "job " << i;
  }
}

TEST(VulkanFiller, GoesOnBesideTheCaller) {
  WeightWriter writer;
  std::latch go(1);
  std::vector<std::byte> out(8);
  const auto make = [&](const WeightWriter::Part&, std::byte*) { go.wait(); };
  const uint64_t held = writer.begin({make, out.data(), 1, 0, out.size(), {}});
  std::vector<std::byte> next;
  const uint64_t after = writer.begin(job_of(1, 1, 8, {}, next));
  EXPECT_FALSE(writer.done(held));
  EXPECT_FALSE(writer.done(after)) << "not before those before it";
  go.count_down();
  writer.wait(after);
  EXPECT_TRUE(writer.done(held));
}

class VulkanFilling : public testing::Test {
 protected:
  void SetUp() override {
    try {
      auto instance = std::make_unique<Instance>();
      if (!instance->devices().empty()) core_ = std::make_shared<Core>(std::move(instance), 0);
    } catch (const Error&) {
    }
    if (core_ == nullptr) GTEST_SKIP() << "no Vulkan device";
  }
  CorePtr core_;
};

TEST_F(VulkanFilling, IsOverBeforeItsMemoryGoes) {
  Memory& memory = core_->memory;
  Allocation to(memory, 1 << 20, MemoryUse::kUpload);
  ASSERT_NE(to.mapped(), nullptr);
  std::atomic<size_t> made{0};
  std::latch begun(1);
  memory.fill(to, 1 << 10, [&](const WeightWriter::Part& part, std::byte*) {
    if (part.first == 0) begun.count_down();
    for (size_t i = 0; i < part.count; ++i) {
      for (int k = 0; k < 100; ++k) std::this_thread::yield();
      ++made;
    }
  });
  begun.wait();
  to = Allocation();
  EXPECT_EQ(made, size_t{1} << 10);
}

TEST_F(VulkanFilling, BorrowsTheViewUntilThen) {
  const std::vector<float> values(512 * 512, 1.5f);
  const TensorView view{DType::kF32, {512, 512}, std::as_bytes(std::span(values))};
  VulkanBuffer weight(core_, view);
  EXPECT_TRUE(weight.borrows());
  std::latch go(1);
  const Allocation before(core_->memory, 16, MemoryUse::kUpload);
  core_->memory.fill(before, 16, [&](const WeightWriter::Part&, std::byte*) { go.wait(); });
  const Allocation& rows = weight.weight(WeightLayout::kRows);
  EXPECT_TRUE(weight.borrows());
  go.count_down();
  core_->memory.wait_filled();
  EXPECT_FALSE(weight.borrows());
  std::vector<std::byte> got(rows.size());
  core_->memory.read(rows, 0, got);
  EXPECT_TRUE(std::ranges::equal(got, view.bytes));
}

// Several times as much as the ring has room for; among it what is larger than a piece of it.
TEST_F(VulkanFilling, GoesThroughARingWhereTheHostSeesNoDeviceMemory) {
  setenv("SPLIT_VULKAN_DISABLE", "host_visible", 1);
  Core core(std::make_unique<Instance>(), 0);
  unsetenv("SPLIT_VULKAN_DISABLE");  // a device stays what it was made as
  Memory& memory = core.memory;
  constexpr size_t kMiB = size_t{1} << 20;
  std::vector<Allocation> filled;
  const auto byte_at = [](size_t weight, size_t i) {
    return static_cast<std::byte>(weight * 89 + i * 7 + (i >> 8) * 13 + (i >> 16) * 31);
  };
  for (const auto& [unit, count] : {std::pair<size_t, size_t>{4096, 1000},
                                    {3, 5},
                                    {5 * kMiB, 2},
                                    {kMiB - 12, 30},
                                    {12288, 3000},
                                    {4, 1}}) {
    const Allocation& to = filled.emplace_back(memory, unit * count, MemoryUse::kModel);
    EXPECT_EQ(to.mapped(), nullptr);
    const size_t weight = filled.size(), bytes = unit;
    memory.fill(to, unit, [=](const WeightWriter::Part& part, std::byte* out) {
      for (size_t i = 0; i < part.count * bytes; ++i) {
        out[i] = byte_at(weight, part.first * bytes + i);
      }
    });
  }
  // Weights that have not been made yet keep their place in the ring.
  constexpr size_t kFirst = 0, kLater = 8;
  std::atomic<bool> begun{false};
  bool too_early = false;
  std::latch later(1);
  const Allocation large(memory, 64 * kMiB, MemoryUse::kModel);
  memory.fill(large, kMiB, [&](const WeightWriter::Part& part, std::byte*) {
    if (part.first == kLater) later.count_down();
    if (part.first != kFirst) return;
    later.wait();
    too_early = begun;
  });
  begun = true;
  memory.wait_filled();
  EXPECT_FALSE(too_early) << "all was begun";
  for (size_t weight = 1; weight <= filled.size(); ++weight) {
    std::vector<std::byte> got(filled[weight - 1].size());
    memory.read(filled[weight - 1], 0, got);
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i] == byte_at(weight, i) ? 0 : 1;
    EXPECT_EQ(wrong, 0u) << "weight " << weight;
  }
}

}  // namespace
}  // namespace split::vulkan
