// tensor/'s conversions between number formats.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <random>

#include "io_testing.h"
#include "tensor/shape.h"

namespace split {
namespace {

// The half nearest to `value`, ties to even, by arithmetic in double: every half and every midpoint
// is exact there.
uint16_t reference_f16(double value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  value = std::fabs(value);
  if (value >= 65520.0) return static_cast<uint16_t>(sign | 0x7c00);
  // std::ilogb(0) is a huge negative number, so zero takes the subnormals' step.
  const int exponent = std::max(std::ilogb(value), -14);
  const double step = std::ldexp(1.0, exponent - 10);
  const auto steps = static_cast<uint32_t>(std::nearbyint(value / step));  // ties to even
  return static_cast<uint16_t>(sign | ((exponent + 14) * 1024 + steps));
}
uint16_t reference_bf16(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const double magnitude = std::fabs(static_cast<double>(value));
  const int exponent = magnitude == 0 ? -126 : std::max(std::ilogb(magnitude), -126);
  const auto steps = static_cast<uint32_t>(std::nearbyint(std::ldexp(magnitude, 7 - exponent)));
  return static_cast<uint16_t>(sign | ((exponent + 126) * 128 + steps));
}

TEST(Convert, EveryHalfIsItsValueAndComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = f16_to_f32(bits);
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << i;
    if (exponent == 31) {
      ASSERT_EQ(std::isnan(value), mantissa != 0) << i;
      ASSERT_EQ(std::isinf(value), mantissa == 0) << i;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
      ASSERT_EQ(std::fabs(static_cast<double>(value)), magnitude) << i;
    }
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_f16(value), (bits & 0x8000) | 0x7e00) << i;
    } else {
      ASSERT_EQ(f32_to_f16(value), bits) << i;
    }
  }
}

TEST(Convert, EveryBf16IsItsValueAndComesBack) {
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto bits = static_cast<uint16_t>(i);
    const float value = bf16_to_f32(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(value), i << 16);
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_bf16(value), bits | 0x40) << i;
    } else {
      ASSERT_EQ(f32_to_bf16(value), bits) << i;
    }
  }
}

TEST(Convert, RoundsToNearestEven) {
  const auto check = [](uint32_t bits) {
    const auto value = std::bit_cast<float>(bits);
    if (std::isnan(value)) {
      ASSERT_EQ(f32_to_f16(value), (bits >> 16 & 0x8000) | 0x7e00) << bits;
      ASSERT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(value)))) << bits;
      return;
    }
    ASSERT_EQ(f32_to_f16(value), reference_f16(value)) << std::hexfloat << value;
    if (!std::isinf(value)) {
      ASSERT_EQ(f32_to_bf16(value), reference_bf16(value)) << std::hexfloat << value;
    } else {
      ASSERT_EQ(f32_to_bf16(value), bits >> 16);
    }
  };
  // Each value both 16-bit types can hold, the midpoint after it, and the floats beside these two.
  for (uint32_t i = 0; i < 65536; ++i) {
    const auto half = std::bit_cast<uint32_t>(f16_to_f32(static_cast<uint16_t>(i)));
    for (const uint32_t base : {half, half + (1u << 12), i << 16, (i << 16) + 0x8000u}) {
      for (const uint32_t bits : {base - 1, base, base + 1}) check(bits);
    }
    const float subnormal_midpoint = (static_cast<float>(i % 1024) + 0.5f) * 0x1p-24f;
    const auto bits = std::bit_cast<uint32_t>(subnormal_midpoint);
    for (const uint32_t near : {bits - 1, bits, bits + 1}) check(near), check(near | 0x80000000u);
    if (HasFailure()) return;
  }
  std::mt19937 random(2);
  for (int i = 0; i < 2000000 && !HasFailure(); ++i) check(static_cast<uint32_t>(random()));
}

TEST(Convert, TensorsOfAnyCountAndAlignment) {
  // Against one value at a time, from and to odd addresses: what the vectorised loops and their
  // tails must equal.
  const DType types[] = {DType::kF32, DType::kF16, DType::kBF16};
  std::mt19937 random(3);
  for (const DType from : types) {
    for (const DType to : types) {
      for (const size_t count : {0, 1, 3, 7, 8, 31, 64, 257}) {
        const size_t in = dtype_size(from), size = dtype_size(to);
        std::vector<std::byte> source(count * in + 1), target(count * size + 2, std::byte{0xa5});
        for (std::byte& b : source) b = static_cast<std::byte>(random());
        const TensorView view{from, {static_cast<int64_t>(count)}, Bytes(source).subspan(1)};
        convert(view, to, std::span(target).subspan(1, count * size));
        for (size_t i = 0; i < count; ++i) {
          uint32_t word = 0, got = 0;
          std::memcpy(&word, source.data() + 1 + i * in, in);
          std::memcpy(&got, target.data() + 1 + i * size, size);
          const auto low = static_cast<uint16_t>(word);
          const float value = from == DType::kF32   ? std::bit_cast<float>(word)
                              : from == DType::kF16 ? f16_to_f32(low)
                                                    : bf16_to_f32(low);
          const uint32_t expected = from == to          ? word
                                    : to == DType::kF32 ? std::bit_cast<uint32_t>(value)
                                    : to == DType::kF16 ? f32_to_f16(value)
                                                        : f32_to_bf16(value);
          ASSERT_EQ(got, expected) << dtype_name(from) << " to " << dtype_name(to) << " at " << i;
        }
        EXPECT_EQ(target.front(), std::byte{0xa5});
        EXPECT_EQ(target.back(), std::byte{0xa5});
      }
    }
  }
}

TEST(Convert, OwnsItsBytesAlsoAfterAMove) {
  const std::vector<uint16_t> halves{0x3c00, 0xc000};  // 1, -2
  OwnedTensor first = converted(view_of(DType::kF16, {2, 1}, halves), DType::kF32);
  const OwnedTensor second = std::move(first);
  EXPECT_EQ(second.view.dims, (Dims{2, 1}));
  EXPECT_EQ(second.view.bytes.data(), second.storage.data());
  float values[2];
  ASSERT_EQ(second.view.bytes.size(), sizeof values);
  std::memcpy(values, second.view.bytes.data(), sizeof values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], -2.0f);
}

TEST(Convert, RefusesIntegers) {
  const std::vector<int32_t> ids{1};
  const std::vector<float> floats{1};
  EXPECT_EQ(
      error_of(ErrorKind::kShape, [&] { converted(view_of(DType::kI32, {1}, ids), DType::kF32); }),
      "[convert] expected F32, F16 or BF16, got I32");
  EXPECT_EQ(error_of(ErrorKind::kShape,
                     [&] { converted(view_of(DType::kF32, {1}, floats), DType::kU8); }),
            "[convert] expected F32, F16 or BF16, got U8");
  EXPECT_EQ(converted(view_of(DType::kI32, {1}, ids), DType::kI32).storage.size(), 4u);
}

}  // namespace
}  // namespace split
