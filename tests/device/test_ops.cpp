// The op table: every row against a double reference, its gradient against finite differences.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>

#include "compile/compile.h"
#include "device/cpu/kernels/glsl_shim.h"
#include "device/cpu/kernels/kernels.h"
#include "kernel_values.h"
#include "support/run_program.h"
#include "tensor/blocks.h"
#include "tensor/tensor.h"

namespace split::glsl::gradients {

using namespace split::glsl;  // NOLINT: the table's rows are GLSL

struct Row {
  float (*forward)(float x, float z);
  float (*dx)(float x, float z, float y, float dy);
  float (*dz)(float x, float z, float y, float dy);
};

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

using test::run_program;
using test::same_bits;
using test::StepValues;

constexpr double kInf = std::numeric_limits<double>::infinity();

// --- References

using Unary = std::function<double(double)>;
using Binary = std::function<double(double, double)>;

const std::map<std::string_view, Unary> kUnaryReferences = {
    {"neg", [](double x) { return -x; }},
    {"abs", [](double x) { return std::abs(x); }},
    {"square", [](double x) { return x * x; }},
    {"sqrt", [](double x) { return std::sqrt(x); }},
    {"rsqrt", [](double x) { return 1 / std::sqrt(x); }},
    {"reciprocal", [](double x) { return 1 / x; }},
    {"exp", [](double x) { return std::exp(x); }},
    {"log", [](double x) { return std::log(x); }},
    {"tanh", [](double x) { return std::tanh(x); }},
    {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"erf", [](double x) { return std::erf(x); }},
    {"relu", [](double x) { return std::max(x, 0.0); }},
    {"silu", [](double x) { return x / (1 + std::exp(-x)); }},
    {"gelu", [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
    {"gelu_new",
     [](double x) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
     }},
};

const std::map<std::string_view, Binary> kBinaryReferences = {
    {"add", [](double x, double z) { return x + z; }},
    {"sub", [](double x, double z) { return x - z; }},
    {"mul", [](double x, double z) { return x * z; }},
    {"div", [](double x, double z) { return x / z; }},
    {"maximum", [](double x, double z) { return std::max(x, z); }},
    {"minimum", [](double x, double z) { return std::min(x, z); }},
};

struct Reduction {
  double start;
  Binary combine;
};
const std::map<std::string_view, Reduction> kReduceReferences = {
    {"sum", {0, [](double a, double b) { return a + b; }}},
    {"max", {-kInf, [](double a, double b) { return std::max(a, b); }}},
    {"min", {kInf, [](double a, double b) { return std::min(a, b); }}},
};

template <typename T>
const T& reference(const std::map<std::string_view, T>& references, std::string_view name) {
  const auto at = references.find(name);
  if (at == references.end()) throw std::runtime_error(cat("no reference for op '", name, "'"));
  return at->second;
}

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

constexpr int64_t kColumns[] = {1, 7, 256, 257};
constexpr uint32_t kRowCounts[] = {1, 3, 5};

template <typename Test>
void for_each_shape(Test test) {
  for (const int64_t columns : kColumns) {
    for (const uint32_t rows : kRowCounts) test(columns, rows);
  }
}

StepValues step_of(uint32_t rows) {
  StepValues step;
  step.rows = rows;
  return step;
}

// --- The table against double

TEST(Ops, EveryUnaryRowAgreesWithDouble) {
  const auto device = make_cpu_device(2);
  for (const Op op : ops_of(OpKind::kUnary)) {
    const std::string_view name = op_info(op).name;
    const Unary& expected = reference(kUnaryReferences, name);
    for_each_shape([&](int64_t columns, uint32_t rows) {
      const Tensor x = input("x", DType::kF32, {kRows, columns});
      const Program program = compile("op", {{"y", unary(op, x)}}, device->fuse_rules());
      for (uint32_t seed = 0; seed < 4; ++seed) {
        StepValues step = step_of(rows);
        const auto& in = step.values["x"] = values(rows * columns, seed * 11, takes_nan(name));
        const auto got = run_program(*device, program, step)["y"];
        for (size_t i = 0; i < in.size(); ++i) {
          EXPECT_TRUE(close_to(got[i], expected(in[i]))) << name << "(" << in[i] << ")";
        }
      }
    });
  }
}

// Over the whole range and densely, where the FUNC rows have their seams.
TEST(Ops, EveryUnaryRowAgreesWithDoubleEverywhere) {
  const CpuKernels& kernels = choose_kernels("");
  std::vector<float> in, out;
  for (float x = -12; x < 12; x += 0.0007f) in.push_back(x);
  for (float x = -110; x < 110; x += 0.013f) in.push_back(x);
  for (uint32_t bits = 1; bits < 0x7f800000u; bits += 200003) {  // all magnitudes, subnormal too
    const float x = glsl::intBitsToFloat(static_cast<int>(bits));
    in.push_back(x);
    in.push_back(-x);
  }
  out.resize(in.size());
  for (const Op op : ops_of(OpKind::kUnary)) {
    const Unary& expected = reference(kUnaryReferences, op_info(op).name);
    kernels.unary[op](in.data(), out.data(), in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      ASSERT_TRUE(close_to(out[i], expected(in[i]))) << op_info(op).name << "(" << in[i] << ")";
    }
  }
}

TEST(Ops, EveryBinaryRowAgreesWithDoubleHoweverBroadcast) {
  const auto device = make_cpu_device(2);
  enum Side { kSame, kVector, kPerRow, kConstant };
  for (const Op op : ops_of(OpKind::kBinary)) {
    const std::string_view name = op_info(op).name;
    const Binary& expected = reference(kBinaryReferences, name);
    for_each_shape([&](int64_t columns, uint32_t rows) {
      for (const Side side : {kSame, kVector, kPerRow, kConstant}) {
        for (const bool left : {false, true}) {
          const Tensor x = input("x", DType::kF32, {kRows, columns});
          const Tensor z = side == kSame     ? input("z", DType::kF32, {kRows, columns})
                           : side == kVector ? weight("z", DType::kF32, {columns})
                           : side == kPerRow ? input("z", DType::kF32, {kRows, 1})
                                             : Tensor(0.75f);
          const Program program = compile("op", {{"y", left ? binary(op, z, x) : binary(op, x, z)}},
                                          device->fuse_rules());
          StepValues step = step_of(rows);
          const size_t n = rows * columns;
          const auto& xs = step.values["x"] = values(n, 3, takes_nan(name));
          const size_t zn = side == kSame ? n : side == kVector ? columns : rows;
          const auto zs = values(zn, 14, takes_nan(name));
          if (side != kConstant) step.values["z"] = zs;
          const auto got = run_program(*device, program, step)["y"];
          for (size_t i = 0; i < n; ++i) {
            const float b = side == kSame     ? zs[i]
                            : side == kVector ? zs[i % columns]
                            : side == kPerRow ? zs[i / columns]
                                              : 0.75f;
            EXPECT_TRUE(close_to(got[i], left ? expected(b, xs[i]) : expected(xs[i], b)))
                << name << " of " << xs[i] << " and " << b << (left ? " (left)" : "");
          }
        }
      }
    });
  }
}

TEST(Ops, EveryReductionAgreesWithDouble) {
  const auto device = make_cpu_device(2);
  for (const Op op : ops_of(OpKind::kReduce)) {
    const std::string_view name = op_info(op).name;
    const Reduction& expected = reference(kReduceReferences, name);
    for_each_shape([&](int64_t columns, uint32_t rows) {
      const Tensor x = input("x", DType::kF32, {kRows, columns});
      // Alone, and spread over its row again.
      const Program program =
          compile("op", {{"y", reduce(op, x)}, {"spread", neg(x) * 0.0f + reduce(op, x)}},
                  device->fuse_rules());
      for (const float special : {0.0f, 87.0f, -kInfinity, kInfinity}) {
        StepValues step = step_of(rows);
        auto& in = step.values["x"] = ordinary(rows * columns, 5);
        if (special != 0) in.back() = special;
        const auto got = run_program(*device, program, step);
        for (size_t row = 0; row < rows; ++row) {
          double sum = expected.start, size = 0;
          for (int64_t c = 0; c < columns; ++c) {
            sum = expected.combine(sum, in[row * columns + c]);
            size += std::abs(in[row * columns + c]);
          }
          const float y = got.at("y")[row];
          // A sum is close for the size of what is summed.
          if (std::isinf(size)) {
            EXPECT_TRUE(close_to(y, sum)) << name;
          } else {
            EXPECT_NEAR(y, sum, 1e-6 * std::max(1.0, size)) << name;
          }
          if (std::isinf(special) && row + 1 == rows) continue;  // 0 x inf
          for (int64_t c = 0; c < columns; ++c) {
            EXPECT_EQ(got.at("spread")[row * columns + c], y) << name;
          }
        }
      }
    });
  }
}

TEST(Ops, TopKIsTheHeadOfTheSortedRow) {
  const auto device = make_cpu_device(2);
  for_each_shape([&](int64_t columns, uint32_t rows) {
    for (const int64_t k : {int64_t{1}, std::min<int64_t>(columns, 40), columns}) {
      const Program program = compile(
          "op", {{"y", topk(input("x", DType::kF32, {kRows, columns}), k)}}, device->fuse_rules());
      StepValues step = step_of(rows);
      auto& in = step.values["x"] = ordinary(rows * columns, 5);
      for (float& x : in) x = std::round(x * 4) / 4;  // with equal ones, and with -0
      in[in.size() / 2] = -kInfinity;
      in.back() = std::nanf("");
      const auto got = run_program(*device, program, step);
      for (size_t row = 0; row < rows; ++row) {
        const auto at = [&](int64_t c) { return in[row * columns + c]; };
        std::vector<int64_t> order(columns);
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          if (!std::isfinite(at(a)) || !std::isfinite(at(b))) {
            return !std::isfinite(at(a)) && std::isfinite(at(b));
          }
          return at(a) > at(b);
        });
        const float* const y = got.at("y").data() + row * 2 * k;
        for (int64_t i = 0; i < k; ++i) {
          EXPECT_TRUE(same_bits(y[i], at(order[i])));
          EXPECT_EQ(y[k + i], static_cast<float>(order[i]));
        }
      }
    }
  });
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
double slope(const Unary& f, double x) {
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
        const Unary& f = reference(kUnaryReferences, info.name);
        if (std::isnan(f(x))) continue;  // outside of the domain
        const double expected = kDy * slope(f, x);
        EXPECT_NEAR(derived.dx(x, 0, derived.forward(x, 0), kDy), expected,
                    std::max(2e-5, 2e-5 * std::abs(expected)))
            << info.name << " at " << x;
        continue;
      }
      const Binary& f = reference(kBinaryReferences, info.name);
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

TEST(Gradients, OfReductionsAreTheSlopesOfTheForward) {
  size_t row = ops_of(OpKind::kUnary).size() + ops_of(OpKind::kBinary).size();
  for (const Op op : ops_of(OpKind::kReduce)) {
    const Reduction& expected = reference(kReduceReferences, op_info(op).name);
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

// --- Instruction sets

}  // namespace
}  // namespace split::test
