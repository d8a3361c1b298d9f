// PyTorch's results (tests/golden/ops): operations with their gradients, and training runs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "tests/split_ops/cases.h"
#include "tests/split_ops/training.h"

namespace split::ops {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/golden/ops";

std::string told(const Report& report) { return report.json().dump(); }

TEST(OpsGoldens, EveryKnownCaseAgreesInEveryLayout) {
  Goldens goldens(kGoldens);
  array::Runtime runtime(2);
  const Report report = run_cases(goldens, runtime);
  EXPECT_EQ(report.cases, 1150u);
  EXPECT_EQ(report.skipped, 708u);
  EXPECT_TRUE(report.failed.empty()) << told(report);
}

// The demo model's take minutes: with SPLIT_LONG.
TEST(OpsGoldens, RunsThatAreThereAgreeAtEveryStep) {
  Goldens goldens(kGoldens);
  array::Runtime runtime(2);
  const bool all = std::getenv("SPLIT_LONG") != nullptr;
  if (all) std::filesystem::current_path(SPLIT_SOURCE_DIR);  // where weights/demo is
  const Report report =
      run_training(goldens, SPLIT_SOURCE_DIR "/tests/golden/models", runtime,
                   [&](const std::string& name) { return all || !name.starts_with("finetune/"); });
  EXPECT_EQ(report.cases, all ? 23u : 20u);
  EXPECT_EQ(report.skipped, 6u);
  EXPECT_TRUE(report.failed.empty()) << told(report);
}

// A tenth of the cases, or all of them with SPLIT_LONG; runs of some steps on small models.
TEST(OpsGoldens, AgreeOnVulkan) {
  const std::vector<ListedDevice> devices = list_devices();
  const auto gpu = std::ranges::find_if(devices, [](const ListedDevice& one) {
    return one.usable && one.name.starts_with("vulkan");
  });
  if (gpu == devices.end()) GTEST_SKIP() << "no Vulkan device";
  Goldens goldens(kGoldens);
  array::Runtime runtime(DeviceOptions{.device = gpu->name});
  const bool all = std::getenv("SPLIT_LONG") != nullptr;
  std::mt19937 random(47);
  const Report report =
      run_cases(goldens, runtime, [&](const std::string&) { return random() % 10 == 0 || all; });
  EXPECT_GT(report.cases - report.skipped, all ? 440u : 30u);
  EXPECT_TRUE(report.failed.empty()) << told(report);
  if (all) std::filesystem::current_path(SPLIT_SOURCE_DIR);
  const Report runs = run_training(goldens, SPLIT_SOURCE_DIR "/tests/golden/models", runtime,
                                   [&](const std::string& name) {
                                     return all || name == "train_gpt/adam" ||
                                            name == "gemma2/lora" || name == "qwen3/last_block";
                                   });
  EXPECT_EQ(runs.cases, all ? 23u : 3u);
  EXPECT_TRUE(runs.failed.empty()) << told(runs);
}

TEST(OpsGoldens, RefusesASetThatIsNotThere) {
  Goldens goldens("/nonexistent");
  array::Runtime runtime(1);
  EXPECT_THROW(run_cases(goldens, runtime), Error);
}

}  // namespace
}  // namespace split::ops
