// The op table as the CPU compiles it: every row against a double reference, over the whole range
// and at its ends; its gradient against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "device/cpu/kernels/glsl_shim.h"
#include "device/cpu/kernels/kernels.h"
#include "kernel_values.h"
#include "support/op_references.h"
#include "support/run_program.h"

namespace split::glsl::gradients {

using namespace split::glsl;  // NOLINT: the table's rows are GLSL

struct Row {
  float (*forward)(float x, float z);
  float (*dx)(float x, float z, float y, float dy);
  float (*dz)(float x, float z, float y, float dy);
};

// The gradient column's words beside the table's, as over Tensor in autograd/grad.cpp.
float select(bool c, float a, float b) { return c ? a : b; }
float share(bool c, float dy) { return c ? dy : 0.0f; }  // of one element alone

// The table compiled as C++: for a reduction the forward is one step of it.
#define FUNC(type, name, parameters, ...) [[maybe_unused]] static type name parameters __VA_ARGS__
#define UNARY(name, forward, gradient)                                                      \
  struct unary_##name {                                                                     \
    static float y_(float x, [[maybe_unused]] float z) { return forward; }                  \
    static float dx_([[maybe_unused]] float x, float, [[maybe_unused]] float y, float dy) { \
      return gradient;                                                                      \
    }                                                                                       \
    static constexpr Row kRow{y_, dx_, nullptr};                                            \
  };
#define BINARY(name, forward, gradient_x, gradient_z)                                              \
  struct binary_##name {                                                                           \
    static float y_(float x, float z) { return forward; }                                          \
    static float dx_([[maybe_unused]] float x, [[maybe_unused]] float z, [[maybe_unused]] float y, \
                     float dy) {                                                                   \
      return gradient_x;                                                                           \
    }                                                                                              \
    static float dz_([[maybe_unused]] float x, [[maybe_unused]] float z, [[maybe_unused]] float y, \
                     float dy) {                                                                   \
      return gradient_z;                                                                           \
    }                                                                                              \
    static constexpr Row kRow{y_, dx_, dz_};                                                       \
  };
#define REDUCE(name, start, combine, gradient)                                              \
  struct reduce_##name {                                                                    \
    static float y_(float acc, float x) { return combine; }                                 \
    static float dx_([[maybe_unused]] float x, float, [[maybe_unused]] float y, float dy) { \
      return gradient;                                                                      \
    }                                                                                       \
    static constexpr Row kRow{y_, dx_, nullptr};                                            \
  };
#include "tensor/ops.def"

const Row kRows[] = {
#define UNARY(name, ...) unary_##name::kRow,
#define BINARY(name, ...) binary_##name::kRow,
#define REDUCE(name, ...) reduce_##name::kRow,
#include "tensor/ops.def"
};

}  // namespace split::glsl::gradients

namespace split::test {
namespace {

// 1e-5 relative or 1e-6 absolute; infinities and NaN exactly. Results of a size that a float cannot
// hold may be the largest float's neighbour or infinity.
testing::AssertionResult close_to(float got, double expected) {
  const bool good = std::isnan(expected) ? std::isnan(got)
                    : std::abs(expected) > 3.4028e38
                        ? std::abs(got) > 3.402e38f && std::signbit(got) == std::signbit(expected)
                        : std::abs(got - expected) <= std::max(1e-6, 1e-5 * std::abs(expected));
  if (good) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "got " << got << ", expected " << expected;
}

// --- The table against double; through Programs, and on every device, in test_every_device.cpp

// Over the whole range and densely, where the FUNC rows have their seams.
TEST(Ops, EveryUnaryRowAgreesWithDoubleEverywhere) {
  const CpuKernels& kernels = choose_kernels("");
  std::vector<float> in(std::begin(kSpecial), std::end(kSpecial)), out;
  for (float x = -12; x < 12; x += 0.0007f) in.push_back(x);
  for (float x = -110; x < 110; x += 0.013f) in.push_back(x);
  for (uint32_t bits = 1; bits < 0x7f800000u; bits += 200003) {  // all magnitudes, subnormal too
    const float x = glsl::intBitsToFloat(static_cast<int>(bits));
    in.push_back(x);
    in.push_back(-x);
  }
  out.resize(in.size());
  for (const Op op : ops_of(OpKind::kUnary)) {
    const UnaryReference& expected = reference(kUnaryReferences, op_info(op).name);
    kernels.unary[op](in.data(), out.data(), in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      if (std::isnan(in[i]) && !takes_nan(op_info(op).name)) continue;
      ASSERT_TRUE(close_to(out[i], expected(in[i]))) << op_info(op).name << "(" << in[i] << ")";
    }
  }
}

// Every special value beside every other, by rows and by one number.
TEST(Ops, EveryBinaryRowAgreesWithDoubleAtItsEnds) {
  const CpuKernels& kernels = choose_kernels("");
  const std::vector<float> xs(std::begin(kSpecial), std::end(kSpecial));
  std::vector<float> rows(xs.size()), by(xs.size());
  for (const Op op : ops_of(OpKind::kBinary)) {
    const std::string_view name = op_info(op).name;
    const BinaryReference& expected = reference(kBinaryReferences, name);
    for (const float z : kSpecial) {
      const std::vector<float> zs(xs.size(), z);
      kernels.binary[op](xs.data(), zs.data(), rows.data(), xs.size());
      kernels.binary_by[op](xs.data(), z, by.data(), xs.size());
      for (size_t i = 0; i < xs.size(); ++i) {
        if ((std::isnan(xs[i]) || std::isnan(z)) && !takes_nan(name)) continue;
        EXPECT_TRUE(close_to(rows[i], expected(xs[i], z))) << name << " of " << xs[i] << ", " << z;
        EXPECT_TRUE(same_bits(rows[i], by[i])) << name << " of " << xs[i] << " by " << z;
      }
    }
  }
}

// The largest of values that are all below any float, and the other way round.
TEST(Ops, ReductionsStartWithTheNeutralElement) {
  const CpuKernels& kernels = choose_kernels("");
  for (const size_t n : {1, 7, 16, 40}) {
    for (const float x : {-kInfinity, kInfinity, -3.4028235e38f, 3.4028235e38f}) {
      const std::vector<float> row(n, x);
      for (const Op op : {Op::k_reduce_max, Op::k_reduce_min}) {
        float y = 0;
        kernels.reduce[op](row.data(), n, 1, n, &y);
        EXPECT_EQ(y, x);
      }
    }
  }
}

// --- Gradients

// Central differences of the double reference; h where the rounding and the cubic term balance.
double slope(const UnaryReference& f, double x) {
  const double h = 1e-5 * std::max(1.0, std::abs(x));
  return (f(x + h) - f(x - h)) / (2 * h);
}

TEST(Gradients, AreTheSlopesOfTheForward) {
  ASSERT_EQ(std::size(glsl::gradients::kRows), ops_of(OpKind::kUnary).size() +
                                                   ops_of(OpKind::kBinary).size() +
                                                   ops_of(OpKind::kReduce).size());
  size_t row = 0;
  for (size_t i = 0; i < op_table().size(); ++i) {
    const OpInfo& info = op_table()[i];
    if (info.kind != OpKind::kUnary && info.kind != OpKind::kBinary) continue;
    const auto& derived = glsl::gradients::kRows[row++];
    for (float x = -5.02f; x < 5.1f; x += 0.13f) {
      constexpr float kDy = -1.7f;
      if (info.kind == OpKind::kUnary) {
        const UnaryReference& f = reference(kUnaryReferences, info.name);
        if (std::isnan(f(x))) continue;  // outside of the domain
        const double expected = kDy * slope(f, x);
        EXPECT_NEAR(derived.dx(x, 0, derived.forward(x, 0), kDy), expected,
                    std::max(2e-5, 2e-5 * std::abs(expected)))
            << info.name << " at " << x;
        continue;
      }
      const BinaryReference& f = reference(kBinaryReferences, info.name);
      for (const float z : {-3.31f, -0.4f, 0.27f, 2.011f}) {
        const float y = derived.forward(x, z);
        const double dx = kDy * slope([&](double t) { return f(t, z); }, x);
        const double dz = kDy * slope([&](double t) { return f(x, t); }, z);
        EXPECT_NEAR(derived.dx(x, z, y, kDy), dx, std::max(2e-5, 2e-5 * std::abs(dx)))
            << info.name << " by x at " << x << ", " << z;
        EXPECT_NEAR(derived.dz(x, z, y, kDy), dz, std::max(2e-5, 2e-5 * std::abs(dz)))
            << info.name << " by z at " << x << ", " << z;
      }
    }
  }
}

TEST(Gradients, MatchTheSlopesOfReductions) {
  size_t row = ops_of(OpKind::kUnary).size() + ops_of(OpKind::kBinary).size();
  for (const Op op : ops_of(OpKind::kReduce)) {
    const ReduceReference& expected = reference(kReduceReferences, op_info(op).name);
    const auto& derived = glsl::gradients::kRows[row++];
    const std::vector<float> in = ordinary(9, 8);
    const auto reduced = [&](size_t changed, double value) {
      double acc = expected.start;
      for (size_t i = 0; i < in.size(); ++i) {
        acc = expected.combine(acc, i == changed ? value : in[i]);
      }
      return acc;
    };
    const auto y = static_cast<float>(reduced(in.size(), 0));
    for (size_t i = 0; i < in.size(); ++i) {
      const double dx = 1.3 * slope([&](double t) { return reduced(i, t); }, in[i]);
      EXPECT_NEAR(derived.dx(in[i], 0, y, 1.3f), dx, 1e-5) << op_info(op).name;
    }
  }
}

}  // namespace
}  // namespace split::test
