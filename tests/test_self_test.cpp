#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "run/self_test.h"
#include "temporary_folder.h"

namespace split {
namespace {

// The CPU, but for one kind of step, whose first result is off.
class Wrong : public Device {
 public:
  explicit Wrong(std::optional<StepKind> kind, double by = 0.1) : kind_(kind), by_(by) {}
  int runs() const { return runs_; }

  std::string name() const override { return "wrong"; }
  std::optional<std::string> fingerprint() const override { return "wrong, driver 1"; }
  FuseRules fuse_rules() const override { return cpu_->fuse_rules(); }
  std::unique_ptr<Buffer> alloc(size_t bytes) override { return cpu_->alloc(bytes); }
  std::unique_ptr<Buffer> alloc_pages(const Limits& limits, int64_t channels,
                                      DType dtype) override {
    return cpu_->alloc_pages(limits, channels, dtype);
  }
  std::unique_ptr<Buffer> upload(const Slot& slot, const TensorView& view) override {
    return cpu_->upload(slot, view);
  }
  void write(Buffer& buffer, size_t offset, Bytes bytes) override {
    cpu_->write(buffer, offset, bytes);
  }
  void read(const Buffer& buffer, size_t offset, std::span<std::byte> out) override {
    cpu_->read(buffer, offset, out);
  }
  std::unique_ptr<Workspace> workspace(const Limits& limits) override {
    return cpu_->workspace(limits);
  }
  std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                   std::span<const Binding> bindings) override {
    auto executable = cpu_->load(program, workspace, bindings);
    for (const Step& step : program.steps) {
      if (step.kind == kind_) wrong_.insert(executable.get());
    }
    return executable;
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    cpu_->run(workspace, programs, batch);
    ++runs_;
    if (wrong_.contains(programs[0]))
      *reinterpret_cast<float*>(batch.out_bytes.data()) += static_cast<float>(by_);
  }

 private:
  std::unique_ptr<Device> cpu_ = make_cpu_device(1);
  std::optional<StepKind> kind_;
  double by_;
  std::set<const Executable*> wrong_;
  int runs_ = 0;
};

TEST(SelfTest, PassesWhatComputesRight) {
  Wrong right({});
  self_test(right);
  EXPECT_GT(right.runs(), 10);
}

TEST(SelfTest, NamesTheKernelThatDoesNot) {
  for (const auto& [kind, part] : {std::pair{StepKind::kGroup, "layer norm of 40 rows"},
                                   {StepKind::kMatmul, "product by F32 of 40 rows"},
                                   {StepKind::kAttention, "attention over F32 of 40 rows"}}) {
    for (const double by : {0.1, std::nan("")}) {
      Wrong wrong(kind, by);
      try {
        self_test(wrong);
        ADD_FAILURE() << part;
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kDevice);
        EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      }
    }
  }
}

TEST(SelfTest, TheCpuTakesTheWrongDevicesPlaceUnlessItWasAskedFor) {
  const DeviceOptions any{"auto", 1}, asked{"vulkan", 1};
  EXPECT_EQ(tested(std::make_unique<Wrong>(StepKind::kMatmul), any, {})->name().substr(0, 3),
            "cpu");
  EXPECT_THROW(tested(std::make_unique<Wrong>(StepKind::kMatmul), asked, {}), Error);
  EXPECT_EQ(tested(make_cpu_device(1), any, {})->name().substr(0, 3), "cpu");
}

TEST(SelfTest, AGoodDeviceIsRememberedAndAWrongOneIsNot) {
  const test::TemporaryFolder folder;
  const DeviceOptions asked{"vulkan", 1};
  const auto runs = [&](std::optional<StepKind> kind) {
    auto device = std::make_unique<Wrong>(kind);
    const auto kept = tested(std::move(device), asked, folder.path);
    return static_cast<Wrong&>(*kept).runs();
  };
  EXPECT_THROW(runs(StepKind::kMatmul), Error);
  EXPECT_THROW(runs(StepKind::kMatmul), Error);
  EXPECT_GT(runs({}), 10);
  EXPECT_EQ(runs({}), 0);
}

#ifdef SPLIT_WITH_VULKAN
TEST(SelfTest, PassesTheVulkanDevice) {
  if (list_vulkan_devices().empty()) GTEST_SKIP() << "no Vulkan driver";
  const auto device = make_device({"vulkan", 1});
  self_test(*device);
}
#endif

}  // namespace
}  // namespace split
