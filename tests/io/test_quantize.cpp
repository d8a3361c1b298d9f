// Blocks of quantised weights: their layout against an independent statement of ggml's
// (tests/golden/blocks/make.py), and the quantiser against ggml's rounding.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <random>

#include "base/file.h"
#include "io/quantize.h"
#include "io/safetensors.h"

namespace split {
namespace {

constexpr DType kFormats[] = {DType::kQ8_0, DType::kQ4_0};
constexpr const char* kMatrices[] = {"normal", "ragged", "heavy", "exact8", "exact4"};

struct Goldens {
  MappedFile file{std::string(SPLIT_SOURCE_DIR) + "/tests/golden/blocks/blocks.safetensors"};
  Safetensors tensors = Safetensors::parse(file.bytes(), "blocks");

  const TensorView& values(const std::string& name) const {
    return tensors.tensors().at(name + ".values");
  }
  // Returns the matrix as ggml quantises it.
  TensorView matrix(const std::string& name, DType dtype) const {
    const TensorView& view = tensors.tensors().at(cat(name, ".", format_name(dtype)));
    return {dtype, values(name).dims, view.bytes};
  }
};

std::vector<float> floats_of(const TensorView& view) {
  std::vector<float> out(view.bytes.size() / sizeof(float));
  std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
  return out;
}

TEST(Blocks, HaveGgmlsSizes) {
  EXPECT_EQ(tensor_bytes(DType::kQ8_0, {3, 64}), 3u * 2 * 34);
  EXPECT_EQ(tensor_bytes(DType::kQ4_0, {3, 64}), 3u * 2 * 18);
  EXPECT_EQ(tensor_bytes(DType::kQ4_0, {3, 65}), 3u * 3 * 18);
  EXPECT_EQ(tensor_bytes(DType::kQ8_0, {0, 65}), 0u);
  EXPECT_EQ(tensor_bytes(DType::kF16, {3, 5}), 30u);
  // No such tensor, or one past 64 bits.
  EXPECT_EQ(tensor_bytes(DType::kQ8_0, {64}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kQ8_0, {2, 2, 64}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kQ8_0, {-1, 64}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kQ8_0, {int64_t{1} << 60, 1}), std::nullopt);
  EXPECT_EQ(tensor_bytes(DType::kF32, {int64_t{1} << 62}), std::nullopt);
}

TEST(Blocks, AreNoWordsOfSafetensors) {
  EXPECT_EQ(dtype_from_name("Q8_0"), std::nullopt);
  EXPECT_EQ(dtype_from_format("q8_0"), DType::kQ8_0);
  EXPECT_EQ(dtype_from_format("Q8_0"), std::nullopt);
  EXPECT_EQ(dtype_from_format(""), std::nullopt);
  EXPECT_EQ(dtype_from_format("i32"), std::nullopt);
}

TEST(Blocks, ReadAsGgmlReadsThem) {
  const Goldens goldens;
  for (const char* name : kMatrices) {
    for (const DType dtype : kFormats) {
      const OwnedTensor read = dequantised(goldens.matrix(name, dtype));
      const TensorView& expected =
          goldens.tensors.tensors().at(cat(name, ".", format_name(dtype), ".read"));
      EXPECT_EQ(read.view.dims, expected.dims);
      EXPECT_EQ(floats_of(read.view), floats_of(expected)) << name << " " << dtype_name(dtype);
    }
  }
}

// Where a format holds the values themselves there is one right answer, byte for byte.
TEST(Quantize, WritesGgmlsBytesWhereNothingIsRounded) {
  const Goldens goldens;
  const std::pair<const char*, DType> exact[] = {{"exact8", DType::kQ8_0},
                                                 {"exact4", DType::kQ4_0}};
  for (const auto& [name, dtype] : exact) {
    const OwnedTensor made = quantised(goldens.values(name), dtype, false, name);
    EXPECT_TRUE(std::ranges::equal(made.view.bytes, goldens.matrix(name, dtype).bytes)) << name;
    EXPECT_EQ(floats_of(dequantised(made.view).view), floats_of(goldens.values(name)));
  }
}

// Squared errors by block, in double.
std::vector<double> errors(const TensorView& matrix, const std::vector<float>& values) {
  const std::vector<float> read = floats_of(dequantised(matrix).view);
  const auto inner = static_cast<size_t>(matrix.dims[1]);
  const size_t blocks = blocks_of(matrix.dims[1]);
  std::vector<double> out(static_cast<size_t>(matrix.dims[0]) * blocks);
  for (size_t i = 0; i < read.size(); ++i) {
    out[i / inner * blocks + i % inner / kBlock] +=
        std::pow(double{values[i]} - double{read[i]}, 2);
  }
  return out;
}

TEST(Quantize, IsNeverWorseThanGgmlsRounding) {
  const Goldens goldens;
  for (const char* name : kMatrices) {
    const std::vector<float> values = floats_of(goldens.values(name));
    for (const DType dtype : kFormats) {
      const OwnedTensor made = quantised(goldens.values(name), dtype, false, name);
      const auto ours = errors(made.view, values),
                 theirs = errors(goldens.matrix(name, dtype), values);
      double total = 0, total_theirs = 0;
      for (size_t b = 0; b < ours.size(); ++b) {
        // Sums of squares in float differ from those in double in the last bits.
        EXPECT_LE(ours[b], theirs[b] * (1 + 1e-5)) << name << " " << dtype_name(dtype) << " " << b;
        total += ours[b];
        total_theirs += theirs[b];
      }
      // And better on the whole where it can be: a tenth less for four bits, of which an
      // exhaustive search finds no more (0.886 on normal values).
      if (dtype == DType::kQ4_0 && std::string_view(name) != "exact4") {
        EXPECT_LT(total, 0.95 * total_theirs) << name;
      }
    }
  }
}

TEST(Quantize, TransposesConvolutionsAndFillsUpTheLastBlock) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 0.02f);
  const int64_t rows = 71, inner = 45;  // more than a strip of rows
  std::vector<float> straight(static_cast<size_t>(rows * inner)), turned(straight.size());
  for (size_t r = 0; r < 71; ++r) {
    for (size_t k = 0; k < 45; ++k) straight[r * 45 + k] = turned[k * 71 + r] = normal(random);
  }
  for (const DType from : {DType::kF32, DType::kF16, DType::kBF16}) {
    const OwnedTensor a =
        converted({DType::kF32, {rows, inner}, std::as_bytes(std::span(straight))}, from);
    const OwnedTensor b =
        converted({DType::kF32, {inner, rows}, std::as_bytes(std::span(turned))}, from);
    for (const DType dtype : kFormats) {
      const OwnedTensor one = quantised(a.view, dtype, false, "a");
      const OwnedTensor other = quantised(b.view, dtype, true, "b");
      EXPECT_EQ(one.view.dims, (Dims{rows, inner}));
      EXPECT_EQ(other.view.dims, one.view.dims);
      EXPECT_EQ(one.storage, other.storage);
      ASSERT_EQ(one.storage.size(), 71u * 2 * block_bytes(dtype));
      // 13 values, then zeros: int8 0, or nibble 8.
      const std::byte* last = one.storage.data() + one.storage.size() - block_bytes(dtype);
      if (dtype == DType::kQ8_0) {
        for (size_t i = 13; i < kBlock; ++i) EXPECT_EQ(last[2 + i], std::byte{0});
      } else {
        for (size_t i = 0; i < 16; ++i) EXPECT_EQ(last[2 + i] >> 4, std::byte{8});
      }
    }
  }
}

TEST(Quantize, GivesTheSameBytesOnAnyNumberOfThreads) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(300 * 70);
  for (float& value : values) value = normal(random);
  for (const bool transpose : {false, true}) {
    const TensorView matrix{DType::kF32, {300, 70}, std::as_bytes(std::span(values))};
    for (const DType dtype : kFormats) {
      const OwnedTensor expected = quantised(matrix, dtype, transpose, "m");
      for (const unsigned threads : {1, 2, 5}) {
        ThreadPool pool(threads);
        EXPECT_EQ(quantised(matrix, dtype, transpose, "m", &pool).storage, expected.storage);
      }
    }
  }
  // The first of two bad rows is named.
  values[250 * 70] = values[130 * 70 + 69] = std::numeric_limits<float>::infinity();
  ThreadPool pool(3);
  try {
    quantised({DType::kF32, {300, 70}, std::as_bytes(std::span(values))}, DType::kQ4_0, false, "m",
              &pool);
    ADD_FAILURE() << "infinity was rounded";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "[quantize] 'm' as q4_0: row 130 has a value that is not finite or too large");
  }
}

// FNV-1a of the blocks, the same on x86 and on aarch64 (scripts/test_aarch64.sh): blobs are named
// by their hash, so whoever makes them must make the same.
TEST(Quantize, GivesTheSameBytesOnEveryMachine) {
  const Goldens goldens;
  uint64_t hash = 0xcbf29ce484222325;
  for (const char* name : kMatrices) {
    for (const DType dtype : kFormats) {
      for (const std::byte byte : quantised(goldens.values(name), dtype, false, name).storage) {
        hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001b3;
      }
    }
  }
  EXPECT_EQ(hash, 7851907233305242097u);
}

TEST(Quantize, HoldsTheLargestAndTheSmallestAndNothingElse) {
  for (const DType dtype : kFormats) {
    std::byte out[34];
    const auto block = [&](float first, float second = 0) {
      float values[kBlock] = {first, second};
      return quantise_block(dtype, values, out);
    };
    const float largest = 65504.0f * (dtype == DType::kQ8_0 ? 127.0f : 8.0f);
    EXPECT_TRUE(block(largest));
    EXPECT_TRUE(block(-largest, largest));
    const float infinity = std::numeric_limits<float>::infinity();
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const float bad : {std::nextafter(largest, infinity), -infinity, infinity, nan, -nan}) {
      EXPECT_FALSE(block(bad)) << bad;
      EXPECT_FALSE(block(1, bad)) << bad;
    }
    // Too small for a half's scale: zeros, and no infinite quotient on the way.
    for (const float tiny : {0.0f, -0.0f, 1e-45f, 1e-30f, 1e-8f, 1e-6f}) {
      ASSERT_TRUE(block(tiny, -tiny));
      float read[kBlock];
      dequantise_row(dtype, out, kBlock, read);
      EXPECT_LE(std::abs(read[0] - tiny), tiny) << tiny;
      EXPECT_EQ(read[5], 0.0f);
    }
  }
  const std::vector<float> bad{1, 2, std::numeric_limits<float>::quiet_NaN()};
  try {
    quantised({DType::kF32, {3, 1}, std::as_bytes(std::span(bad))}, DType::kQ8_0, false, "h.0.w");
    ADD_FAILURE() << "NaN was rounded";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_EQ(std::string(error.what()),
              "[quantize] 'h.0.w' as q8_0: row 2 has a value that is not finite or too large");
  }
}

TEST(Blocks, KnowEveryScaleThatIsNotFinite) {
  const Goldens goldens;
  for (const DType dtype : kFormats) {
    const TensorView good = goldens.matrix("normal", dtype);
    EXPECT_TRUE(scales_are_finite(good));
    for (const uint16_t bits : {0x7c00, 0xfc00, 0x7e01, 0xffff}) {
      for (const size_t block :
           {size_t{0}, size_t{7}, good.bytes.size() / block_bytes(dtype) - 1}) {
        std::vector<std::byte> bytes(good.bytes.begin(), good.bytes.end());
        std::memcpy(bytes.data() + block * block_bytes(dtype), &bits, sizeof bits);
        EXPECT_FALSE(scales_are_finite({dtype, good.dims, bytes})) << bits << " " << block;
      }
    }
  }
}

}  // namespace
}  // namespace split
