#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "run/self_test.h"
#include "support/forwarding_device.h"
#include "support/temporary_folder.h"

namespace split {
namespace {

// The CPU, but for one kind of step, whose first result is off.
class Wrong : public test::ForwardingDevice {
 public:
  explicit Wrong(std::optional<Op> op, double by = 0.1)
      : ForwardingDevice(make_cpu_device(1)), op_(op), by_(by) {}
  int runs() const { return runs_; }

  std::string name() const override { return "wrong"; }
  std::optional<std::string> fingerprint() const override { return "wrong, driver 1"; }
  std::unique_ptr<Executable> load(const Program& program, Workspace& workspace,
                                   std::span<const Binding> bindings) override {
    auto executable = ForwardingDevice::load(program, workspace, bindings);
    for (const Step& step : program.steps) {
      if (step.op == op_) wrong_.insert(executable.get());
    }
    return executable;
  }
  void run(Workspace& workspace, std::span<Executable* const> programs,
           const RowBatch& batch) override {
    ForwardingDevice::run(workspace, programs, batch);
    ++runs_;
    if (wrong_.contains(programs[0])) {
      *reinterpret_cast<float*>(batch.out_bytes.data()) += static_cast<float>(by_);
    }
  }

 private:
  std::optional<Op> op_;
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
  for (const auto& [op, part] : {std::pair{Op::k_group, "layer norm of 40 rows"},
                                 {Op::k_matmul, "product by F32 of 40 rows"},
                                 {Op::k_attention, "attention over F32 of 40 rows"},
                                 {Op::k_topk, "top k of 40 rows"}}) {
    for (const double by : {0.1, std::nan("")}) {
      Wrong wrong(op, by);
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
  EXPECT_EQ(tested(std::make_unique<Wrong>(Op::k_matmul), any, {})->name().substr(0, 3), "cpu");
  EXPECT_THROW(tested(std::make_unique<Wrong>(Op::k_matmul), asked, {}), Error);
  EXPECT_EQ(tested(make_cpu_device(1), any, {})->name().substr(0, 3), "cpu");
}

TEST(SelfTest, AGoodDeviceIsRememberedAndAWrongOneIsNot) {
  const test::TemporaryFolder folder;
  const DeviceOptions asked{"vulkan", 1};
  const auto runs = [&](std::optional<Op> op) {
    auto device = std::make_unique<Wrong>(op);
    const auto kept = tested(std::move(device), asked, folder.path);
    return static_cast<Wrong&>(*kept).runs();
  };
  EXPECT_THROW(runs(Op::k_matmul), Error);
  EXPECT_THROW(runs(Op::k_matmul), Error);
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
