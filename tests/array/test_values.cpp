// Tensors as values: made, computed with, written in place, printed and differentiated when it is
// written.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "array/plan.h"
#include "array/session.h"
#include "array/value.h"
#include "autograd/grad.h"
#include "autograd/reductions.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace split {
namespace {

using array::Runtime;

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}
std::vector<float> floats(const Value& x) { return x.to_vector<float>(); }

TEST(Values, AreComputedWhenTheyAreLookedAt) {
  Runtime rt("cpu");
  const Value a = rt.tensor({{1, 2, 3}, {4, 5, 6}}), b = rt.ones({3});
  const Value c = a * 2.0f + b;
  EXPECT_EQ(floats(c), (std::vector<float>{3, 5, 7, 9, 11, 13}));
  EXPECT_EQ(Value(sum(a)).item(), 21);
  EXPECT_EQ(rt.tensor({{1}, {2}}).dims(), (Dims{2, 1}));
  EXPECT_EQ(floats(rt.arange(1, 2, 0.25)), (std::vector<float>{1, 1.25, 1.5, 1.75}));
  std::ostringstream out;
  out << c;
  EXPECT_EQ(out.str(), "tensor([[ 3.,  5.,  7.],\n        [ 9., 11., 13.]])");
  EXPECT_NE(message_of([&] {
              rt.tensor({{1, 2}, {3}});
            }).find("rows of one length"),
            std::string::npos);
  EXPECT_NE(message_of([&] { a.item(); }).find("one element"), std::string::npos);
}

TEST(Values, HaveGradientsThatAdd) {
  Runtime rt("cpu");
  Value x = rt.tensor({1, 2, 3});
  x.requires_grad_();
  EXPECT_FALSE(x.has_grad());
  const Value y = sum(x * x);
  y.backward();
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{2, 4, 6}));
  Value(sum(x)).backward();
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{3, 5, 7}));
  x.zero_grad();
  EXPECT_FALSE(x.has_grad());
  // One that is no number takes ones, and keeps its own.
  const Value c = x * 3.0f;
  c.backward();
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{3, 3, 3}));
  EXPECT_EQ(floats(c.grad()), (std::vector<float>{1, 1, 1}));
  // A tensor that is detached, or made without gradients, leads nowhere, and says so.
  EXPECT_FALSE(x.detach().requires_grad());
  EXPECT_NE(message_of([&] { Value(sum(x.detach())).backward(); }).find("requires_grad_"),
            std::string::npos);
  {
    const NoGrad none;
    const Value d = x * 2.0f;
    EXPECT_FALSE(d.requires_grad());
  }
  Value i = rt.tensor({1, 2}, DType::kI64);
  EXPECT_NE(message_of([&] { i.requires_grad_(); }).find("F32"), std::string::npos);
  // A tensor in the middle keeps its own where it is asked to.
  Value middle = x * 2.0f;
  middle.retain_grad();
  Value(sum(middle * middle)).backward();
  EXPECT_EQ(floats(middle.grad()), (std::vector<float>{4, 8, 12}));
}

TEST(Values, TakeGradientsOfFunctionsThatACallerDefines) {
  Runtime rt("cpu");
  Value x = rt.tensor({1, -2});
  x.requires_grad_();
  const Tensor in = x;
  // A clamp that lets a gradient pass, doubled.
  const Value y = autograd::with_gradient(clamp(in, -1.0f, 1.0f), {in}, [](const Tensor& dy) {
    return std::vector<Tensor>{dy * 2.0f};
  });
  EXPECT_EQ(floats(y), (std::vector<float>{1, -1}));
  Value(sum(y)).backward();
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{2, 2}));
}

TEST(Values, ShareWhatViewsOfThemWrite) {
  Runtime rt("cpu");
  Value x = rt.tensor({{1, 2, 3}, {4, 5, 6}});
  const Value same = x, row = x[{1}], turned = transpose(x, 0, 1);
  Value column = x[{kAll, Slice{0, 3, 2}}];
  column.mul_(10.0f);
  EXPECT_EQ(floats(same), (std::vector<float>{10, 2, 30, 40, 5, 60}));
  EXPECT_EQ(floats(row), (std::vector<float>{40, 5, 60}));
  EXPECT_EQ(floats(turned), (std::vector<float>{10, 40, 2, 5, 30, 60}));
  Value(turned[{1}]).zero_();
  EXPECT_EQ(floats(x), (std::vector<float>{10, 0, 30, 40, 0, 60}));
  Value copy = x.clone();
  copy.add_(1.0f);
  EXPECT_EQ(x.to_vector()[0], 10);
  Value whole = rt.tensor({1, 2, 3}, DType::kI32);
  Value tail = whole[{Slice{1}}];
  tail.add_(5);
  EXPECT_EQ(whole.to_vector<int32_t>(), (std::vector<int32_t>{1, 7, 8}));
  EXPECT_NE(message_of([&] { whole.add_(0.5f); }).find("I32"), std::string::npos);
  EXPECT_NE(message_of([&] { Value(expand(rt.ones({1}), {3})).add_(1.0f); }).find("expand"),
            std::string::npos);
}

TEST(Values, DifferentiateWhatWasWrittenInPlace) {
  Runtime rt("cpu");
  Value x = rt.tensor({{1, 2}, {3, 4}}), z = rt.tensor({5, 6});
  x.requires_grad_();
  z.requires_grad_();
  Value y = x * 2.0f;
  y.set_({kAll, 1}, z);
  Value(y[{0}]).mul_(3.0f);
  EXPECT_EQ(floats(y), (std::vector<float>{6, 15, 6, 6}));
  Value(sum(y * y)).backward();
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{72, 0, 24, 0}));
  EXPECT_EQ(floats(z.grad()), (std::vector<float>{90, 12}));
  EXPECT_NE(message_of([&] { x.add_(1.0f); }).find("NoGrad"), std::string::npos);
}

TEST(Values, PrintAsPyTorchDoes) {
  const Json all = parse_json(
      read_file(std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/golden/ops/printing.json",
                1 << 20),
      8, "[printing]");
  Runtime rt("cpu");
  size_t cases = 0;
  for (const Json& one : all) {
    Dims dims;
    for (const Json& size : one.at("shape")) dims.push_back(size.get<int64_t>());
    const DType dtype = *dtype_from_name(one.at("dtype").text());
    std::vector<double> numbers;
    for (const Json& value : one.at("values")) {
      numbers.push_back(value.is_boolean()      ? (value.get<bool>() ? 1 : 0)
                        : !value.is_string()    ? value.get<double>()
                        : value.text() == "nan" ? std::nan("")
                        : value.text() == "inf" ? INFINITY
                                                : -INFINITY);
    }
    const std::vector<float> floats(numbers.begin(), numbers.end());
    const std::vector<int64_t> wides(numbers.begin(), numbers.end());
    Value x = is_floating(dtype) ? rt.tensor({DType::kF32, dims, std::as_bytes(std::span(floats))})
                                 : rt.tensor({DType::kI64, dims, std::as_bytes(std::span(wides))});
    x = cast(x, dtype);
    if (one.at("requires_grad").get<bool>()) x.requires_grad_();
    EXPECT_EQ(x.to_string(), one.at("text").text());
    ++cases;
  }
  EXPECT_EQ(cases, 22u);
}

// Steps of training, each with values of its own: what a step leaves does not grow.
TEST(Values, LeaveNothingBehind) {
  Runtime rt(1u);
  Value w = rt.randn({8, 4}), x = rt.randn({16, 8});
  w.requires_grad_();
  const auto resident = [] {
    std::ifstream status("/proc/self/statm");
    size_t size = 0, pages = 0;
    status >> size >> pages;
    return pages * 4096;
  };
  const auto step = [&] {
    const Value loss = mean(square(matmul(x, w)));
    loss.backward();
    const NoGrad none;
    w.sub_(Tensor(w.grad()) * 0.01f);
    w.zero_grad();
    return loss.item();
  };
  double first = 0, last = 0;
  for (int i = 0; i < 100; ++i) (i == 0 ? first : last) = step();
  const size_t before = resident(), plans = rt.session().plans();
  for (int i = 0; i < 1000; ++i) last = step();
  EXPECT_LT(last, first / 2);
  EXPECT_EQ(rt.session().plans(), plans);
  EXPECT_LT(resident(), before + (1 << 20));
}

// Each row in place, and the names that webgpu-torch has beside PyTorch's.
TEST(Values, HaveEachOperationInPlaceAndByItsOtherNames) {
  Runtime rt(1u);
  const auto fresh = [&](DType dtype = DType::kF32) { return rt.tensor({2, -12, 16, 6}, dtype); };
  size_t count = 0;
  const auto same = [&](const char* name, const Tensor& wanted, const Tensor& got) {
    const std::vector<double> a = Value(wanted).to_vector<double>(),
                              b = Value(got).to_vector<double>();
    ASSERT_EQ(a.size(), b.size()) << name;
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_TRUE(a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))) << name << " " << i;
    }
    EXPECT_EQ(Value(wanted).dtype(), Value(got).dtype()) << name;
    ++count;
  };
  const Value z = rt.tensor({1.5, 2, -0.5, 3}), k = rt.tensor({1, 2, 3, 1}, DType::kI32);
#define OF_ONE(name, ...)                 \
  {                                       \
    Value x = fresh() * 0.125f;           \
    const Value wanted = split::name(x);  \
    wanted.to_vector();                   \
    same(#name "_", wanted, x.name##_()); \
  }
#define OF_TWO(name, ...)                   \
  {                                         \
    Value x = fresh() * 0.125f;             \
    const Value wanted = split::name(x, z); \
    wanted.to_vector();                     \
    same(#name "_", wanted, x.name##_(z));  \
  }
#define UNARY OF_ONE
#include "tensor/ops.def"
#define UNARY OF_ONE
#define BINARY OF_TWO
#define WHOLE_UNARY(name, ...)            \
  {                                       \
    Value x = fresh(DType::kI32);         \
    const Value wanted = split::name(x);  \
    wanted.to_vector();                   \
    same(#name "_", wanted, x.name##_()); \
  }
#define WHOLE_BINARY(name, ...)             \
  {                                         \
    Value x = fresh(DType::kI32);           \
    const Value wanted = split::name(x, k); \
    wanted.to_vector();                     \
    same(#name "_", wanted, x.name##_(k));  \
  }
#include "tensor/library.def"
  // clang-format off
  OF_TWO(mul) OF_TWO(div) OF_TWO(maximum) OF_TWO(minimum) OF_TWO(remainder) OF_TWO(ldexp) OF_TWO(fmax) OF_TWO(fmin)
  OF_TWO(add) OF_TWO(sub)
  OF_ONE(frac) OF_ONE(deg2rad) OF_ONE(rad2deg) OF_ONE(log2) OF_ONE(log10) OF_ONE(erfc) OF_ONE(sinc) OF_ONE(digamma)
  OF_ONE(selu) OF_ONE(elu)
  const Value x = fresh() * 0.125f;
#define ALIAS(other, name) same(#other, split::name(x), split::other(x)); OF_ONE(other)
  ALIAS(absolute, abs) ALIAS(arccos, acos) ALIAS(arccosh, acosh) ALIAS(arcsin, asin) ALIAS(arcsinh, asinh)
  ALIAS(arctan, atan) ALIAS(arctanh, atanh) ALIAS(negative, neg) ALIAS(fix, trunc) ALIAS(sgn, sign)
      // clang-format on
      same("arctan2", atan2(x, z), arctan2(x, z));
  same("multiply", x * z, multiply(x, z));
  same("subtract", x - z, subtract(x, z));
  same("clip", clamp(x, -1.0f, 0.5f), clip(x, -1.0f, 0.5f));
  Value y = fresh() * 0.125f;
  same("clamp_", clamp(x, -1.0f, 0.5f), y.clamp_(-1.0f, 0.5f));
  same("masked_fill_", masked_fill(clamp(x, -1.0f, 0.5f), z > 0, 9.0f),
       y.masked_fill_(z > 0, 9.0f));
  same("fill_", rt.full({4}, 7), y.fill_(7));
  EXPECT_GT(count, 90u);
#undef ALIAS
#undef OF_ONE
#undef OF_TWO
}

TEST(Values, HaveTheRandomNumbersOfPhilox) {
  const Json index = parse_json(
      read_file(std::filesystem::path(SPLIT_SOURCE_DIR) / "tests/golden/ops/index.json", 8 << 20),
      16, "[index]");
  Runtime rt("cpu");
  size_t cases = 0;
  for (const Json& one : index.at("philox")) {
    const Json &counter = one.at("counter"), &key = one.at("key");
    if (counter[2].get<uint32_t>() != 0 || key[1].get<uint32_t>() != 0) continue;
    const auto whole = [&](uint32_t x) {
      const std::vector<int32_t> word{static_cast<int32_t>(x)};
      return rt.tensor({DType::kI32, {}, std::as_bytes(std::span(word))});
    };
    const Value words = philox(whole(counter[1].get<uint32_t>()),
                               iota(4, DType::kI32) + whole(4 * counter[0].get<uint32_t>()),
                               whole(key[0].get<uint32_t>()));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(static_cast<uint32_t>(words.to_vector<int32_t>()[i]),
                one.at("output")[i].get<uint32_t>());
    }
    ++cases;
  }
  EXPECT_EQ(cases, 3u);
  rt.manual_seed(7);
  const Value u = rt.rand({1000}), n = rt.randn({100000});
  rt.manual_seed(7);
  EXPECT_EQ(floats(rt.rand({1000})), floats(u));
  EXPECT_NEAR(Value(mean(n)).item(), 0, 0.02);
  EXPECT_NEAR(Value(variance(n, {}, 1)).item(), 1, 0.02);
  const Value p = rt.randperm(100);
  EXPECT_EQ(Value(sort(p, 0).values).to_vector<int64_t>(),
            rt.arange(0, 100, 1, DType::kI64).to_vector<int64_t>());
  const Value d = rt.randint(-3, 4, {1000});
  EXPECT_EQ(Value(amin(d)).item(), -3);
  EXPECT_EQ(Value(amax(d)).item(), 3);
}

}  // namespace
}  // namespace split
