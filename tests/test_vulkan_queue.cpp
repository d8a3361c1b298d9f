// How long steps are cut into submissions.
#include <gtest/gtest.h>

#include "device/vulkan/queue.h"

namespace split {
namespace {

// A device that takes 20 ms for what it was thought to do in 5 is given less at a time.
TEST(VulkanPace, LearnsWhatADeviceTakes) {
  vulkan::Pace pace;
  const vulkan::Cost decode{50'000'000, 0}, prompt{0, 1'000'000'000};
  const double first = pace.estimate_ms(decode);
  EXPECT_GT(first, 0);
  pace.learn(decode, 200);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1);
  EXPECT_NEAR(pace.estimate_ms({25'000'000, 0}), 100, 1);
  const double before = pace.estimate_ms(prompt);
  pace.learn(prompt, before / 1000);
  EXPECT_NEAR(pace.estimate_ms(prompt), before / 4, 1e-3 * before) << "faster bit by bit";
  pace.learn(prompt, 30);
  pace.learn(prompt, 30);
  pace.learn(prompt, 30);
  EXPECT_NEAR(pace.estimate_ms(prompt), 30, 1);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1) << "each has its own rate";
  pace.learn({1000, 0}, 5);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1) << "too small to tell";
}

TEST(VulkanQueue, CutsALongStepIntoSubmissions) {
  using namespace vulkan;
  std::unique_ptr<Instance> instance;
  try {
    instance = std::make_unique<Instance>();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  if (instance->devices().empty()) GTEST_SKIP() << "no Vulkan device";
  Context context(std::move(instance), 0);
  Queue queue(context);
  std::vector<Segment> step;
  for (int i = 0; i < 6; ++i) {
    step.push_back({context.command_buffer(), {20'000'000, 0}});  // 20 ms at the first pace
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    check(vkBeginCommandBuffer(step.back().commands, &begin), "vkBeginCommandBuffer");
    check(vkEndCommandBuffer(step.back().commands), "vkEndCommandBuffer");
  }
  queue.run(step);
  EXPECT_EQ(queue.submissions(), 3u) << "two of 20 ms each";
  for (int i = 0; i < 8; ++i) queue.run(step);  // which takes no time in truth
  const uint64_t before = queue.submissions();
  queue.measure(true);
  queue.run(step);
  EXPECT_EQ(queue.submissions(), before + 1);
  if (context.capabilities().timestamp_bits > 0) {
    ASSERT_TRUE(queue.device_ms().has_value());
    EXPECT_LT(*queue.device_ms(), 1000);
  }
}

}  // namespace
}  // namespace split
