// The CPU's kernels: every fast one against a plain one, and all instruction sets bit for bit.
#include <gtest/gtest.h>

#include <cmath>

#include "compile/compile.h"
#include "support/cpu_kernels.h"
#include "support/op_references.h"
#include "tensor/tensor.h"

namespace split::test {
namespace {

TEST(InstructionSets, AreChosenByName) {
  EXPECT_STREQ(choose_kernels("scalar").name, "scalar");
  EXPECT_THROW(choose_kernels("sse9"), Error);
}

// Rows of n numbers, some apart: each as if it were alone.
std::vector<float> reduced(CpuKernels::Reduce reduce, size_t n) {
  const size_t rows = 7, stride = n + 3;
  const std::vector<float> x = ordinary(rows * stride, 9);
  std::vector<float> together(rows), alone(rows);
  reduce(x.data(), stride, rows, n, together.data());
  for (size_t r = 0; r < rows; ++r) reduce(x.data() + r * stride, 0, 1, n, &alone[r]);
  EXPECT_EQ(first_difference(together, alone), -1) << n << " numbers";
  return together;
}

// Views and kernels have rows before these: nothing may count rows.
TEST(InstructionSets, FindEveryKernelByItsOp) {
  for (const CpuKernels* kernels : kernel_sets()) {
    for (size_t i = 0; i < op_table().size(); ++i) {
      const OpInfo& info = op_table()[i];
      const auto op = static_cast<Op>(i);
      EXPECT_EQ(kernels->unary[op] != nullptr, info.kind == OpKind::kUnary) << info.name;
      EXPECT_EQ(kernels->binary[op] != nullptr, info.kind == OpKind::kBinary) << info.name;
      EXPECT_EQ(kernels->binary_by[op] != nullptr, info.kind == OpKind::kBinary) << info.name;
      EXPECT_EQ(kernels->reduce[op] != nullptr, info.kind == OpKind::kReduce) << info.name;
    }
    const float x = 4;
    float y = 0;
    kernels->unary[Op::k_sqrt](&x, &y, 1);
    EXPECT_EQ(y, 2);
    kernels->reduce[Op::k_reduce_sum](&x, 0, 1, 1, &y);
    EXPECT_EQ(y, 4);
  }
}

TEST(InstructionSets, GiveEqualBitsForEveryOp) {
  const auto sets = kernel_sets();
  for (size_t i = 0; i < op_table().size(); ++i) {
    const OpInfo& info = op_table()[i];
    const auto op = static_cast<Op>(i);
    for (const size_t n : {1, 7, 15, 16, 17, 33, 256, 257, 5003}) {
      const auto x = values(n, 3, takes_nan(info.name)), z = values(n, 20, takes_nan(info.name));
      std::vector<float> first;
      for (const CpuKernels* kernels : sets) {
        std::vector<float> y(n);
        if (info.kind == OpKind::kUnary) kernels->unary[op](x.data(), y.data(), n);
        if (info.kind == OpKind::kBinary) {
          const std::vector<float> by(n, z[0]);
          std::vector<float> expected(n);
          kernels->binary[op](x.data(), by.data(), expected.data(), n);
          kernels->binary_by[op](x.data(), z[0], y.data(), n);
          EXPECT_EQ(first_difference(y, expected), -1) << info.name << " in " << kernels->name;
          kernels->binary[op](x.data(), z.data(), y.data(), n);
        }
        if (info.kind == OpKind::kReduce) y = reduced(kernels->reduce[op], n);
        if (first.empty()) first = y;
        EXPECT_EQ(first_difference(y, first), -1) << info.name << " in " << kernels->name;
      }
    }
  }
}

// In two calls that part at an odd row.
std::vector<std::byte> packed(const std::vector<std::byte>& w, DType dtype, size_t inner,
                              size_t width) {
  std::vector<std::byte> result(w.size());
  const size_t part = std::min<size_t>(inner, 5);
  pack_matrix(w.data(), dtype, inner, width, part, inner, result.data());
  pack_matrix(w.data(), dtype, inner, width, 0, part, result.data());
  return result;
}

// `w` is packed unless transposed.
std::vector<float> product(const CpuKernels& kernels, bool transposed, DType dtype,
                           const std::vector<float>& x, const std::vector<std::byte>& w,
                           size_t rows, size_t inner, size_t width) {
  std::vector<float> panel(kPanelFloats);
  MatmulTask task;
  task.x = x.data();
  task.rows = rows;
  task.w = w.data();
  task.dtype = dtype;
  task.inner = inner;
  task.width = width;
  task.panel = panel.data();
  return all_columns(task, transposed ? kernels.matmul_transposed : kernels.matmul, width,
                     rows % 2 == 0 ? kPanelColumns : kTaskColumns);
}

// Against plain sums in double, to 1e-6 of the sum of magnitudes (a chain of K = 300 roundings of
// 6e-8 grows to about 1e-6); every set of kernels and every number of rows gives the same bits.
void check_products(bool transposed, DType dtype) {
  const auto sets = kernel_sets();
  for (const size_t inner : {1, 7, 16, 20, 64, 100, 257, 300}) {
    for (const size_t width : {1, 7, 16, 20, 32, 48, 64, 96, 100, 128, 257}) {
      const auto w = narrowed(ordinary(inner * width, 6), dtype);
      const auto wide = widened(w, dtype);
      const auto x = ordinary(33 * inner, 7);
      const auto read = transposed ? w : packed(w, dtype, inner, width);
      const auto all = product(*sets[0], transposed, dtype, x, read, 33, inner, width);
      for (size_t row = 0; row < 33; ++row) {
        for (size_t m = 0; m < width; ++m) {
          double sum = 0, size = 0;
          for (size_t k = 0; k < inner; ++k) {
            const double term =
                double(x[row * inner + k]) * wide[transposed ? m * inner + k : k * width + m];
            sum += term;
            size += std::abs(term);
          }
          ASSERT_NEAR(all[row * width + m], sum, 1e-6 * size + 1e-30)
              << inner << " x " << width << ", row " << row << ", column " << m;
        }
      }
      for (const CpuKernels* kernels : sets) {
        for (const size_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17, 33}) {
          const auto y = product(*kernels, transposed, dtype, x, read, rows, inner, width);
          ASSERT_EQ(first_difference(y, std::span(all).first(y.size())), -1)
              << kernels->name << ": " << rows << " rows, " << inner << " x " << width;
        }
      }
    }
  }
}

// A matrix [K, M] is copied into the kernels' order at load and read no more, unless another step
// reads it where it lies.
TEST(CpuDevice, LetsGoOfTheMatricesItPacks) {
  const auto device = make_cpu_device(2);
  const Tensor x = input("x", DType::kF32, {kRows, 20});
  const Tensor index = input("tokens", DType::kI32, {kRows});
  const Tensor w = weight("w", DType::kF32, {20, 20});
  const auto borrows = [&](const Tensor& y, DType dtype = DType::kF32) {
    const Program program = compile("op", {{"y", y}}, device->fuse_rules());
    Limits limits;
    limits.rows = 1;
    limits.arena_row_bytes = program.arena_row_bytes;
    const auto workspace = device->workspace(limits);
    const auto in = device->alloc(80), out = device->alloc(80);
    const std::vector<float> bytes(400);
    const auto size = tensor_bytes(dtype, {20, 20}).value();
    const auto matrix =
        device->upload(program.slots[static_cast<size_t>(program.find("w"))],
                       {dtype, {20, 20}, std::as_bytes(std::span(bytes)).first(size)});
    EXPECT_TRUE(matrix->borrows());
    const Binding bindings[] = {{"x", in.get()}, {"w", matrix.get()}, {"y", out.get()}};
    device->load(program, *workspace, bindings);
    return matrix->borrows();
  };
  EXPECT_FALSE(borrows(matmul(x, w)));
  EXPECT_TRUE(borrows(matmul(x, transpose(w))));
  EXPECT_TRUE(borrows(matmul(x, w) + gather(w, index)));
  const Tensor q = weight("w", DType::kQ8_0, {20, 20});
  EXPECT_FALSE(borrows(matmul(x, transpose(q)), DType::kQ8_0));
}

TEST(CpuDevice, RefusesAStepWithoutAKernel) {
  const auto device = make_cpu_device(1);
  Program program =
      compile("op", {{"y", relu(input("x", DType::kF32, {kRows, 4}))}}, device->fuse_rules());
  StepValues step;
  step.rows = 1;
  step.values["x"] = {1, 2, 3, 4};
  EXPECT_NO_THROW(run_program(*device, program, step));
  program.steps[0].op = Op::k_gather;
  EXPECT_THROW(run_program(*device, program, step), Error);
}

TEST(Blocks, AreReadByProductsAloneAndAlongK) {
  const Tensor x = input("x", DType::kF32, {kRows, 20});
  const Tensor index = input("tokens", DType::kI32, {kRows});
  const Tensor q = weight("w", DType::kQ4_0, {20, 20});
  EXPECT_NO_THROW(matmul(x, transpose(q)));
  EXPECT_THROW(matmul(x, q), Error);
  EXPECT_THROW(gather(q, index), Error);
}

TEST(Kernels, MatmulF32) { check_products(false, DType::kF32); }
TEST(Kernels, MatmulF16) { check_products(false, DType::kF16); }
TEST(Kernels, MatmulBF16) { check_products(false, DType::kBF16); }
TEST(Kernels, MatmulTransposedF32) { check_products(true, DType::kF32); }
TEST(Kernels, MatmulTransposedF16) { check_products(true, DType::kF16); }
TEST(Kernels, MatmulTransposedBF16) { check_products(true, DType::kBF16); }

// Each number is the nearest multiple of the block's scale, the largest of which is 127.
TEST(Kernels, NarrowToBlocksInEverySet) {
  auto x = ordinary(40 * kBlock, 5);
  std::fill_n(x.begin(), kBlock, 0.0f);
  x[kBlock] = 1e30f;  // no scale holds it
  std::vector<std::byte> first;
  for (const CpuKernels* kernels : kernel_sets()) {
    std::vector<std::byte> blocks(kv_bytes(DType::kQ8_0, x.size()));
    kernels->narrow(x.data(), DType::kQ8_0, blocks.data(), x.size());
    if (first.empty()) first = blocks;
    EXPECT_EQ(blocks, first) << kernels->name;
  }
  std::vector<float> back(x.size());
  dequantise_row(DType::kQ8_0, first.data(), x.size(), back.data());
  EXPECT_FALSE(std::isfinite(back[kBlock]));
  for (size_t i = 0; i < x.size(); ++i) {
    if (i / kBlock == 1) continue;
    const float scale = scale_of(first.data() + kv_bytes(DType::kQ8_0, i / kBlock * kBlock));
    // Half a step, and what the largest lost to the rounding of the scale.
    EXPECT_NEAR(back[i], x[i], 0.57f * scale) << i;
  }
}

// Every half there is; and floats that halves lie between.
TEST(Kernels, WidenAndNarrowAgreeWithConvertInEverySet) {
  std::vector<std::byte> halves(2 * 65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto word = static_cast<uint16_t>(bits);
    std::memcpy(&halves[2 * bits], &word, 2);
  }
  std::vector<float> floats = widened(halves, DType::kF16);
  const size_t exact = floats.size();
  for (size_t i = 0; i + 1 < exact; ++i) {
    floats.push_back((floats[i] + floats[i + 1]) / 2);  // ties
    floats.push_back(floats[i] * 1.0001f);
  }
  for (const CpuKernels* kernels : kernel_sets()) {
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const auto expected = widened(halves, dtype);
      for (const size_t n : {65536, 65535, 1, 15, 17}) {
        std::vector<float> got(n);
        kernels->widen(halves.data(), dtype, got.data(), n);
        EXPECT_EQ(first_difference(got, std::span(expected).first(n)), -1) << kernels->name;
      }
    }
    const auto expected = narrowed(floats, DType::kF16);
    for (const size_t n : {floats.size(), size_t{1}, size_t{15}, size_t{17}}) {
      std::vector<std::byte> got(2 * n, std::byte{1});
      kernels->narrow(floats.data(), DType::kF16, got.data(), n);
      for (size_t i = 0; i < n; ++i) {
        if (std::isnan(floats[i])) continue;  // the payload is the hardware's
        ASSERT_EQ(std::memcmp(&got[2 * i], &expected[2 * i], 2), 0)
            << kernels->name << ": " << floats[i];
      }
    }
  }
}

}  // namespace
}  // namespace split::test
