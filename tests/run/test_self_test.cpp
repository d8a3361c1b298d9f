#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "io/quantize.h"
#include "run/self_test.h"
#include "support/exact/specification.h"
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

// The steps by which a device tests itself, from the specification alone, have the hashes that it
// compares with; so they are right on a device that passes.
TEST(SelfTest, TakesTheBitsOfTheSpecification) {
  constexpr size_t kChannels = 96, kInner = 160, kQueries = 192, kKeys = 64, kSize = 32;
  struct Matrix {
    Matrix(const char* name, DType dtype, size_t width, size_t inner) : dtype(dtype), width(width) {
      const auto values = test_numbers(name, width * inner);
      blocks = quantised({DType::kF32,
                          {static_cast<int64_t>(width), static_cast<int64_t>(inner)},
                          std::as_bytes(std::span(values))},
                         dtype, false, name);
    }
    std::vector<float> by(std::span<const float> x) const {
      const test::exact::Row row = test::exact::rounded(x);
      std::vector<float> y(width);
      for (size_t m = 0; m < width; ++m) {
        y[m] = test::exact::product(dtype,
                                    blocks.view.bytes.data() + m * row_bytes(dtype, x.size()), row);
      }
      return y;
    }
    DType dtype;
    size_t width;
    OwnedTensor blocks;
  };
  const Matrix qkv("qkv", DType::kQ8_0, kQueries + 2 * kKeys, kChannels);
  const Matrix o("o", DType::kQ4_0, kChannels, kQueries);
  const Matrix gate("gate", DType::kQ8_0, kInner, kChannels);
  const Matrix up("up", DType::kQ4_0, kInner, kChannels);
  const Matrix down("down", DType::kQ8_0, kChannels, kInner);
  const auto g1 = test_numbers("g1", kChannels), g2 = test_numbers("g2", kChannels);
  const auto cos = test_numbers("cos", 64 * kSize / 2), sin = test_numbers("sin", 64 * kSize / 2);

  std::map<std::string, std::vector<uint64_t>> hashes;
  for (const std::vector<uint32_t>& steps :
       {std::vector<uint32_t>{40}, std::vector<uint32_t>{20, 1}, std::vector<uint32_t>{20, 5}}) {
    std::vector<float> keys, values;
    std::map<std::string, std::vector<float>> last;
    uint32_t past = 0;
    for (const uint32_t rows : steps) {
      last.clear();
      const auto all = test_numbers(cat("x", past), rows * kChannels);
      for (size_t row = 0; row < rows; ++row, ++past) {
        const auto x = std::span(all).subspan(row * kChannels, kChannels);
        const auto put = [&](const char* step, std::span<const float> y) {
          last[step].insert(last[step].end(), y.begin(), y.end());
        };
        const auto normed = test::exact::rms_norm(x, g1, 1e-5f);
        put("norm", normed);
        auto made = qkv.by(normed);
        put("product", made);
        const auto turn = std::span(cos).subspan(past * kSize / 2, kSize / 2);
        const auto other = std::span(sin).subspan(past * kSize / 2, kSize / 2);
        test::exact::rotate(std::span(made).first(kQueries + kKeys), turn, other);
        for (size_t c = 0; c < kKeys; ++c) {
          keys.push_back(test::exact::table::bf16_f(made[kQueries + c]));
          values.push_back(test::exact::table::bf16_f(made[kQueries + kKeys + c]));
        }
        std::vector<float> attended;
        for (size_t head = 0; head < kQueries / kSize; ++head) {
          const size_t kv = head / (kQueries / kKeys) * kSize;
          const auto y =
              test::exact::attended(std::span(made).subspan(head * kSize, kSize), keys.data() + kv,
                                    values.data() + kv, kKeys, past + 1, 0.2f);
          attended.insert(attended.end(), y.begin(), y.end());
        }
        put("attention", attended);
        auto middle = o.by(attended);
        for (size_t c = 0; c < kChannels; ++c) middle[c] = x[c] + middle[c];
        const auto again = test::exact::rms_norm(middle, g2, 1e-5f);
        auto inner = gate.by(again);
        const auto beside = up.by(again);
        for (size_t c = 0; c < kInner; ++c) {
          inner[c] = inner[c] * test::exact::table::sigmoid_f(inner[c]) * beside[c];
        }
        auto y = down.by(inner);
        for (size_t c = 0; c < kChannels; ++c) y[c] = middle[c] + y[c];
        put("block", y);
      }
    }
    for (const auto& [step, rows] : last) hashes[step].push_back(test::exact::hash_of(rows));
  }
  for (const ExactBits& bits : exact_bits()) {
    EXPECT_EQ(hashes[bits.step], std::vector<uint64_t>(bits.hashes, bits.hashes + 3)) << bits.step;
  }
}

// A device whose step has another last bit says so, and none of the CPU's sets does.
TEST(SelfTest, NamesTheStepThatDiffersFromTheSpecification) {
  for (const char* limit : test::kInstructionSets) {
    ::setenv("SPLIT_CPU_ISA", limit, 1);
    EXPECT_EQ(exact_difference(*make_cpu_device(2)), nullptr) << limit;
  }
  ::unsetenv("SPLIT_CPU_ISA");
  for (const auto& [op, step] : {std::pair{Op::k_group, "norm"},
                                 {Op::k_matmul, "product"},
                                 {Op::k_attention, "attention"}}) {
    Wrong wrong(op, 1e-7);
    EXPECT_STREQ(exact_difference(wrong), step);
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
