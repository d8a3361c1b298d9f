// Tests which temporaries the CPU rounds on their way to the products that read them.
#include <gtest/gtest.h>

#include "compile/compile.h"
#include "device/cpu/bf16_temporaries.h"
#include "tensor/tensor.h"

namespace split::test {
namespace {

constexpr int64_t kWidth = 64;

Tensor x() { return input("x", DType::kF32, {kRows, kWidth}); }
Tensor times(const Tensor& from, const char* name, DType dtype = DType::kQ8_0) {
  return matmul(from, transpose(weight(name, dtype, {kWidth, kWidth})));
}

// The buffers of a Program's rounded slots, in the order of their writers.
std::vector<int> buffers_of(const std::vector<NamedOutput>& outputs) {
  const Program program = compile("p", outputs, FuseRules{});
  const auto slots =
      bf16_temporaries(program, [](const Slot& slot) { return is_quantised(slot.dtype); });
  std::vector<int> buffers;
  for (const Step& step : program.steps) {
    for (const TapeOutput& output : step.tape.outputs) {
      const RoundedSlot& slot = slots[static_cast<size_t>(output.slot)];
      if (slot.matrix >= 0) buffers.push_back(slot.buffer);
    }
  }
  return buffers;
}

TEST(Bf16Temporaries, AreWhatOnlyRoundingProductsRead) {
  EXPECT_EQ(buffers_of({{"y", times(relu(x()), "a")}}), std::vector<int>{0});
  EXPECT_EQ(buffers_of({{"y", times(relu(x()), "a", DType::kF32)}}), std::vector<int>{});
  const Tensor shared = relu(x());
  EXPECT_EQ(buffers_of({{"y", times(shared, "a")}, {"z", times(shared, "b")}}),
            std::vector<int>{0});
  EXPECT_EQ(buffers_of({{"y", times(shared, "a")}, {"z", times(shared, "b", DType::kF32)}}),
            std::vector<int>{});
  EXPECT_EQ(buffers_of({{"y", times(shared, "a") + shared}}), std::vector<int>{});
  EXPECT_EQ(buffers_of({{"y", times(shared, "a")}, {"z", shared}}), std::vector<int>{});
}

TEST(Bf16Temporaries, ShareBuffersInTurn) {
  const Tensor first = relu(x()), second = relu(times(first, "a")),
               third = relu(times(second, "b"));
  EXPECT_EQ(buffers_of({{"y", times(third, "c")}}), (std::vector<int>{0, 1, 0}));
  // The first is read again after the third is written, by a product that adds the third's to its
  // own: that stays as it is.
  EXPECT_EQ(buffers_of({{"y", times(first, "d") + times(third, "c")}}).size(), 2u);
}

}  // namespace
}  // namespace split::test
