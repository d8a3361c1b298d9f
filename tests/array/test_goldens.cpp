// PyTorch's results (tests/golden/ops): operations with their gradients, and training runs.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "tests/split_ops/cases.h"
#include "tests/split_ops/training.h"

namespace split::ops {
namespace {

const std::filesystem::path kGoldens = std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/golden/ops";

std::string told(const Report& report) { return report.json().dump(); }

TEST(OpsGoldens, EveryCaseAgreesInEveryLayout) {
  Goldens goldens(kGoldens);
  array::Runtime runtime(2);
  const Report report = run_cases(goldens, runtime);
  EXPECT_EQ(report.cases, 1150u);
  EXPECT_EQ(report.skipped, 0u);
  EXPECT_TRUE(report.failed.empty()) << told(report);
}

// A tenth, by the kernels of other instruction sets, as far as this processor has them.
TEST(OpsGoldens, AgreeByEverySetOfKernels) {
  Goldens goldens(kGoldens);
  const bool all = std::getenv("SPLIT_LONG") != nullptr;
  for (const char* set : {"scalar", "avx2", "avx512"}) {
    ::setenv("SPLIT_CPU_ISA", set, 1);
    array::Runtime runtime(2);
    ::unsetenv("SPLIT_CPU_ISA");
    std::mt19937 random(62);
    const Report report =
        run_cases(goldens, runtime, [&](const std::string&) { return random() % 10 == 0 || all; });
    EXPECT_GT(report.cases, 80u);
    EXPECT_TRUE(report.failed.empty()) << set << " " << told(report);
  }
}

// Each is the one in F32 on the widened inputs, rounded.
TEST(OpsGoldens, HalvesAreRoundedOnce) {
  Goldens goldens(kGoldens);
  array::Runtime runtime(2);
  for (const DType half : {DType::kF16, DType::kBF16}) {
    size_t cases = 0;
    const std::vector<std::string> differ = halves_that_differ(goldens, runtime, half, &cases);
    EXPECT_GT(cases, 500u);
    for (const std::string& one : differ) ADD_FAILURE() << dtype_name(half) << " " << one;
  }
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
  EXPECT_GT(report.cases, all ? 1149u : 80u);
  EXPECT_EQ(report.skipped, 0u);
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

// A set beside the goldens: the index and one family, changed.
class Spoilt {
 public:
  Spoilt() {
    std::filesystem::create_directories(folder);
    for (const char* file : {"index.json", "unary.safetensors"}) {
      std::filesystem::copy_file(kGoldens / file, folder / file,
                                 std::filesystem::copy_options::overwrite_existing);
      std::filesystem::permissions(folder / file, std::filesystem::perms::owner_all);
    }
  }
  ~Spoilt() { std::filesystem::remove_all(folder); }
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / cat("spoilt-goldens-", ::getpid());
};

TEST(OpsGoldens, FindAValueThatIsSpoiltAndNothingElse) {
  const Spoilt set;
  Goldens original(kGoldens);
  const TensorView& view = original.tensor("unary.safetensors", "unary.tanh.3/out.0");
  const auto file = set.folder / "unary.safetensors";
  std::string text = read_file(file, 1 << 20);
  const std::string bytes(reinterpret_cast<const char*>(view.bytes.data()), view.bytes.size());
  const size_t at = text.find(bytes);
  ASSERT_NE(at, text.npos);
  text[at + 2] = static_cast<char>(text[at + 2] ^ 8);  // a bit of the first number's mantissa
  {
    AtomicFile out(file);
    out.append(std::as_bytes(std::span(text)));
    out.commit();
  }
  Goldens goldens(set.folder);
  array::Runtime runtime(1);
  const Report report = run_cases(
      goldens, runtime, [](const std::string& name) { return name.starts_with("unary."); });
  EXPECT_GT(report.cases, 100u);
  ASSERT_EQ(report.failed.size(), 5u);  // in each layout
  for (const Report::Failure& failure : report.failed) {
    EXPECT_EQ(failure.name, "unary.tanh.3");
    EXPECT_GT(failure.worst.error, failure.worst.tolerance);
  }
}

TEST(OpsGoldens, RefuseASetThatIsBroken) {
  array::Runtime runtime(1);
  Goldens nowhere("/nonexistent");
  EXPECT_THROW(run_cases(nowhere, runtime), BrokenGoldens);
  const Spoilt set;
  std::filesystem::resize_file(set.folder / "unary.safetensors", 5000);
  Goldens cut(set.folder);
  EXPECT_THROW(run_cases(cut, runtime), BrokenGoldens);
}

// An operation that is not there is an error, and no skip.
TEST(OpsGoldens, TellAnUnknownOperation) {
  const Spoilt set;
  std::string text = read_file(set.folder / "index.json", 4 << 20);
  for (size_t at = 0; (at = text.find("\"op\": \"exp\"", at)) != text.npos;)
    text.replace(at, 11, "\"op\": \"eXp\"");
  if (text.find("eXp") == text.npos) {
    for (size_t at = 0; (at = text.find("\"op\":\"exp\"", at)) != text.npos;)
      text.replace(at, 10, "\"op\":\"eXp\"");
  }
  {
    AtomicFile out(set.folder / "index.json");
    out.append(std::as_bytes(std::span(text)));
    out.commit();
  }
  Goldens goldens(set.folder);
  array::Runtime runtime(1);
  const Report report =
      run_cases(goldens, runtime, [](const std::string& name) { return name == "unary.exp.0"; });
  ASSERT_EQ(report.failed.size(), 1u);
  EXPECT_NE(report.failed[0].worst.differs.find("eXp"), std::string::npos);
  EXPECT_NE(report.finish(""), 0);
}

}  // namespace
}  // namespace split::ops
