// A device that fails at any step takes all keys and values with it, and no text changes.
#include <gtest/gtest.h>

#include <algorithm>

#include "run/bits.h"
#include "run/text/generate.h"
#include "support/failing_device.h"
#include "support/golden_model.h"

namespace split {
namespace {

using test::FailingDevice;
using test::Golden;
using test::options_for;

constexpr int kTokens = 6;

const Golden& golden() {
  static const Golden golden("rand-a");
  return golden;
}

ShardOptions whole() { return options_for(*golden().model); }

std::vector<int32_t> prompt_of(size_t n) {
  std::vector<int32_t> prompt;
  for (size_t i = 0; i < 5 + n; ++i) prompt.push_back(static_cast<int32_t>(7 * i + n) % 50);
  return prompt;
}

std::vector<int32_t> answer(Forward& forward, size_t n) {
  GenerateOptions options;
  options.max_tokens = kTokens;
  options.sampling.seed = 3;
  options.ignore_end = true;
  return generate(forward, golden().model->config(), nullptr, prompt_of(n), options, {}).tokens;
}

std::vector<int32_t> answer_on(Device& device, int* warnings = nullptr) {
  testing::internal::CaptureStderr();
  std::vector<int32_t> tokens;
  {
    Shard shard(device, *golden().model, golden().weights(), whole());
    Batcher batcher(shard);
    LocalForward forward(batcher);
    tokens = answer(forward, 0);
  }
  const std::string said = testing::internal::GetCapturedStderr();
  if (warnings != nullptr) *warnings = static_cast<int>(std::count(said.begin(), said.end(), '\n'));
  return tokens;
}

TEST(DeviceLoss, LeavesTheTextTheSameAtAnyStep) {
  FailingDevice calm(-1);
  const std::vector<int32_t> want = answer_on(calm);
  ASSERT_EQ(want.size(), size_t{kTokens});
  ASSERT_EQ(calm.steps, kTokens);
  for (const bool for_good : {false, true}) {
    for (int at = 0; at < kTokens; ++at) {
      FailingDevice device(at, for_good);
      int warnings = 0;
      EXPECT_EQ(answer_on(device, &warnings), want) << at;
      EXPECT_EQ(device.restarts, 1) << at;
      EXPECT_EQ(warnings, 1) << at;
    }
  }
}

// A device that fails again at once is not started for ever.
TEST(DeviceLoss, ASecondFailureIsTheCpus) {
  class Worse : public FailingDevice {
   public:
    Worse() : FailingDevice(2) {}
    void run(Workspace& workspace, std::span<Executable* const> programs,
             const RowBatch& batch) override {
      if (restarts > 0) throw Error(ErrorKind::kDevice, "[test] VK_ERROR_DEVICE_LOST");
      FailingDevice::run(workspace, programs, batch);
    }
  } device;
  FailingDevice calm(-1);
  const std::vector<int32_t> want = answer_on(calm);
  int warnings = 0;
  EXPECT_EQ(answer_on(device, &warnings), want);
  EXPECT_EQ(device.restarts, 1);
  EXPECT_EQ(warnings, 2);
}

TEST(DeviceLoss, LetsEverySequenceGoOn) {
  std::vector<std::vector<int32_t>> want;
  for (const int at : {-1, 3, 7}) {
    FailingDevice device(at);
    Shard shard(device, *golden().model, golden().weights(), whole());
    Batcher batcher(shard);
    LocalForward forwards[3]{LocalForward(batcher), LocalForward(batcher), LocalForward(batcher)};
    std::vector<std::vector<int32_t>> got(3), rows(3);
    for (size_t n = 0; n < 3; ++n) rows[n] = prompt_of(n);
    std::vector<uint32_t> past(3, 0);
    for (int step = 0; step < kTokens; ++step) {
      for (size_t n = 0; n < 3; ++n) {
        const auto logits =
            forwards[n].run({.past = past[n],
                             .tokens = rows[n],
                             .phase = step == 0 ? Phase::kPrompt : Phase::kGenerate});
        past[n] += static_cast<uint32_t>(rows[n].size());
        const auto best = std::max_element(logits.begin(), logits.end());
        rows[n] = {static_cast<int32_t>(best - logits.begin())};
        got[n].push_back(rows[n][0]);
      }
    }
    if (at < 0) want = got;
    EXPECT_EQ(got, want) << at;
    EXPECT_EQ(device.restarts, at < 0 ? 0 : 1);
  }
}

TEST(DeviceLoss, TellsCallersOfLostRows) {
  FailingDevice device(1);
  Shard shard(device, *golden().model, golden().weights(), whole());
  Batcher batcher(shard);
  const SequenceId a = shard.pages().open(), b = shard.pages().open();
  const std::vector<int32_t> tokens = prompt_of(0);
  const auto step = [&](SequenceId id, uint32_t past) {
    Job job{id,
            {.range = {.to = golden().model->config().layers},
             .past = past,
             .tokens = tokens,
             .wanted = Wanted::kNone}};
    batcher.run(job);
  };
  step(a, 0);
  step(b, 0);  // begins again by itself
  EXPECT_EQ(device.restarts, 1);
  EXPECT_EQ(shard.pages().length(b), tokens.size());
  EXPECT_THROW(step(a, static_cast<uint32_t>(tokens.size())), SequenceLost);
  EXPECT_EQ(shard.pages().length(a), 0u);
  step(a, 0);
}

// A driver's reset may leave a device that computes otherwise: it says no more that its bits are
// those of every device, and sequences hear that their rows are gone.
TEST(DeviceLoss, TestsItsBitsAgainAndLetsTheirWordGo) {
  for (const bool wrong : {false, true}) {
    test::ResetDevice device(wrong, test::ResetDevice::kSelfTest + 2);
    ShardOptions options = whole();
    options.profile = Profile::kInt8;
    options.formats = StageFormats::parse("q8_0");
    Shard shard(device, *golden().model, golden().weights(), options);
    const auto bits = [&] { return bits_of(shard, [](const Stage&) { return DType::kQ8_0; }); };
    const std::string before = bits();
    EXPECT_TRUE(before.starts_with("exact1; ")) << before;
    Batcher batcher(shard);
    const SequenceId id = shard.pages().open();
    const std::vector<int32_t> tokens = prompt_of(0);
    const int layers = golden().model->config().layers;
    testing::internal::CaptureStderr();
    bool lost = false;
    for (uint32_t past = 0; !lost && past < 20; past += static_cast<uint32_t>(tokens.size())) {
      Job job{id,
              {.range = {.to = layers}, .past = past, .tokens = tokens, .wanted = Wanted::kNone}};
      try {
        batcher.run(job);
      } catch (const SequenceLost&) {
        lost = true;
      }
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(lost);
    EXPECT_EQ(device.restarts, 1);
    EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
    EXPECT_EQ(said.find("exact1 failed at norm") != std::string::npos, wrong) << said;
    EXPECT_EQ(bits().find("; exact1 failed at norm") != std::string::npos, wrong) << bits();
    if (!wrong) {
      EXPECT_EQ(bits(), before);
    }
  }
}

TEST(DeviceLoss, WhileLoadingRestartsTheDeviceOrFallsBackToTheCpu) {
  class NoRoom : public FailingDevice {
   public:
    explicit NoRoom(bool for_good) : FailingDevice(-1, for_good) {}
    std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                        DType dtype) override {
      if (restarts == 0) throw Error(ErrorKind::kDevice, "[test] VK_ERROR_OUT_OF_DEVICE_MEMORY");
      return FailingDevice::alloc_pages(limits, channels, dtype);
    }
  };
  FailingDevice calm(-1);
  const std::vector<int32_t> want = answer_on(calm);
  for (const bool for_good : {false, true}) {
    NoRoom device(for_good);
    int warnings = 0;
    EXPECT_EQ(answer_on(device, &warnings), want);
    EXPECT_EQ(warnings, 1);
    EXPECT_EQ(device.steps, for_good ? 0 : kTokens);
  }
}

}  // namespace
}  // namespace split
