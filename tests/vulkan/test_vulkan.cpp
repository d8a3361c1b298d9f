// The Vulkan device's own features, on whatever device there is (a GPU or lavapipe): groups, matrix
// units, pieces of bindings, rows that see some keys, with bits that do not depend on the company a
// row is in. test_every_device.cpp has what every device does.
#include "base/file.h"
#include "device/drawn.h"
#include "device/vulkan/tuning/lane_order.h"
#include "models/functional.h"
#include "support/products.h"
#include "tensor/blocks.h"
#include "vulkan_bench.h"

namespace split::test {
namespace {

TEST_F(Vulkan, NamesItself) {
  EXPECT_EQ(device_->name().rfind("vulkan:", 0), 0u) << device_->name();
  EXPECT_FALSE(list_vulkan_devices().empty());
  EXPECT_THROW(make_vulkan_device("1000"), Error);
  EXPECT_THROW(make_vulkan_device("x"), Error);
}

TEST_F(Vulkan, BuffersHoldWhatIsWritten) {
  const auto staged = device_with("SPLIT_VULKAN_DISABLE", "host_visible");
  for (Device* device : {device_.get(), staged.get()}) {
    const auto buffer = device->alloc(1001);
    device->write(*buffer, 3, std::as_bytes(std::span("abc", 3)));
    std::vector<std::byte> bytes(8);
    device->read(*buffer, 0, bytes);
    EXPECT_EQ(as_text(bytes), std::string_view("\0\0\0abc\0\0", 8));
  }
}

TEST_F(Vulkan, GroupsMixRowsVectorsAndReductions) {
  for (const int64_t columns : {1, 5, 96, 300, 4099}) {
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    const Tensor norm = layer_norm(x, weight("w", DType::kF16, {columns}),
                                   weight("b", DType::kBF16, {columns}), 1e-5f);
    const Tensor e = exp(x - reduce_max(x));
    const Program program = compile(
        "g", {{"norm", norm}, {"softmax", e / reduce_sum(e)}, {"mean", reduce_sum(x) * 0.5f}},
        device_->fuse_rules());
    Limits limits;
    limits.rows = 9;
    Bench bench(*device_, limits);
    std::vector<float> xs, ws, bs;
    for (uint32_t i = 0; i < 9 * columns; ++i) xs.push_back(noise(i, 3.0f));
    for (uint32_t i = 0; i < columns; ++i) ws.push_back(noise(i + 50)), bs.push_back(noise(i + 9));
    bench.set("x", xs);
    bench.set("w", ws);
    bench.set("b", bs);
    bench.add(program);
    bench.load();
    bench.run(rows_only(9));
    bench.run_reference(rows_only(9));
    for (const char* name : {"norm", "softmax", "mean"}) {
      const auto& want = bench.reference.values.at(name);
      if (columns == 1 && name == std::string("norm"))
        continue;  // 0 * rsqrt(eps): rounding of x - x
      expect_close(bench.read(name, want.size()), want, cat(name, " x ", columns), 1e-5);
    }
  }
}

// Its sums are of distances from an element of the row: rows far from 0, one whose first element
// and one whose middle one is far from the others, and one without a variance.
TEST_F(Vulkan, NormsHoldWhereverTheRowLies) {
  constexpr int64_t kColumns = 300, kOut = 40;
  constexpr uint32_t kRowCount = 4;
  constexpr size_t kWidth = kColumns;
  std::vector<float> xs, ws, ones(kWidth, 1.0f), zeros(kWidth, 0.0f);
  for (uint32_t i = 0; i < kRowCount * kWidth; ++i) xs.push_back(noise(i));
  for (uint32_t i = 0; i < kOut * kWidth; ++i) ws.push_back(noise(i + 31, 0.1f));
  for (size_t i = 0; i < kWidth; ++i) xs[i] += 1000;
  xs[kWidth] = 3000;
  xs[2 * kWidth + kWidth / 2] = -3000;
  std::fill_n(xs.begin() + 3 * kColumns, kColumns, 0.25f);
  const Tensor norm =
      layer_norm(input("x", DType::kF32, {kRows, kColumns}), weight("g", DType::kF32, {kColumns}),
                 weight("b", DType::kF32, {kColumns}), 1e-5f);
  const auto rules = device_->fuse_rules();
  for (const bool alone : {true, false}) {
    Limits limits;
    limits.rows = kRowCount;
    Bench bench(*device_, limits);
    bench.set("x", xs);
    bench.set("g", ones);
    bench.set("b", zeros);
    if (!alone) bench.set("w", ws);
    const Tensor w = transpose(weight("w", DType::kF32, {kOut, kColumns}));
    bench.add(compile("norm", {{"y", alone ? norm : matmul(norm, w)}}, rules));
    bench.load();
    const size_t out = alone ? kWidth : kOut;
    const std::vector<float> got = in_slices(bench, xs, kWidth, out, kRowCount, kRowCount);
    // One row is normed by the product's own kernel.
    expect_equal_bits(in_slices(bench, xs, kWidth, out, kRowCount, 1), got, "by 1");
    for (size_t i = 0; alone && i < got.size(); ++i) {
      const std::span row = std::span(xs).subspan(i / kWidth * kWidth, kWidth);
      double mean = 0, variance = 0;
      for (const float x : row) mean += x / double{kColumns};
      for (const float x : row) variance += (x - mean) * (x - mean) / double{kColumns};
      // x and the mean are rounded to 2^-24 of their size.
      const double scale = 1 / std::sqrt(variance + 1e-5);
      EXPECT_NEAR(got[i], (xs[i] - mean) * scale, 2e-6 + scale * std::abs(mean) * 1.2e-7) << i;
    }
  }
}

// Other products are those of test_every_device; here reading blocks rounds nothing.
TEST_F(Vulkan, ProductsByBlocksAreExactAndRowsAreInvariant) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {
      {1, 1}, {7, 5}, {100, 257}, {257, 96}, {2100, 33}};
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0};
  expect_products(*device_, kSizes, kTypes);
  constexpr std::pair<int64_t, int64_t> kSuperSizes[] = {{256, 1}, {768, 257}, {2304, 33}};
  constexpr DType kSuperTypes[] = {DType::kQ6_K, DType::kQ4_K};
  expect_products(*device_, kSuperSizes, kSuperTypes);
}

// A byte for six bits, a nibble for four, and a word for the scales of 32 numbers; halves would
// take 16 bits a number.
TEST_F(Vulkan, SuperBlocksTakeNineOrFiveBitsANumber) {
  for (const auto& [dtype, bits] :
       {std::pair{DType::kQ8_0, 9}, {DType::kQ6_K, 9}, {DType::kQ4_0, 5}, {DType::kQ4_K, 5}}) {
    const vulkan::LaneOrder order(dtype, 768, 32);
    EXPECT_EQ((order.number_bytes() + order.scale_bytes()) * 8, 768u * bits) << dtype_name(dtype);
    EXPECT_TRUE(device_->multiplies(dtype)) << dtype_name(dtype);
  }
}

// Read as weights.glsl reads them, values have the bits that blocks.h gives them, whatever the sign
// and the size of d and dmin. 32 blocks lie in vectors, eight behind them in order.
TEST(LaneOrder, NeighboursInQ4KHaveWhatEitherNeeds) {
  constexpr size_t kInner = 1280, kLanes = 32, kInVectors = 128, kSide = 4;
  constexpr uint16_t kHalves[][2] = {
      {0x0001, 0x83ff}, {0x83fe, 0x0001}, {0x3c01, 0xc123}, {0xbc02, 0x0000}, {0x7bff, 0xfbff}};
  const vulkan::LaneOrder order(DType::kQ4_K, kInner, kLanes);
  std::vector<std::byte> row(order.view_bytes()), numbers(order.number_bytes());
  std::vector<std::byte> scales(order.scale_bytes());
  for (uint32_t i = 0; i < row.size(); ++i) {
    row[i] = static_cast<std::byte>(static_cast<int>(noise(i, 128.0f)) & 255);
  }
  for (size_t i = 0; i < std::size(kHalves); ++i) {
    std::memcpy(&row[i * block_bytes(DType::kQ4_K)], kHalves[i], sizeof kHalves[i]);
  }
  std::vector<float> want(kInner);
  dequantise_row(DType::kQ4_K, row.data(), kInner, want.data());
  order.write_numbers(row.data(), numbers.data());
  order.write_scales(row.data(), scales.data());
  const auto word = [](const std::vector<std::byte>& words, size_t i) {
    uint32_t result;
    std::memcpy(&result, &words[i * sizeof result], sizeof result);
    return result;
  };
  for (size_t place = 0; place < kInner / 8; ++place) {
    const bool in_order = place >= kInVectors;
    const size_t t = place / kSide;
    const size_t chunk =
        in_order ? place : (t / kLanes * kSide + place % kSide) * kLanes + t % kLanes;
    const size_t block = in_order ? place / 4 : place / (4 * kSide) * kSide + place % kSide;
    const uint32_t own = word(scales, block), beside = word(scales, block ^ (in_order ? 1 : kSide));
    const bool odd = (own & 0x1000) != 0;
    const auto factor = [](uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000); };
    const float scale = factor(odd ? beside : own) * static_cast<float>(own & 63);
    const float less = factor(odd ? own : beside) * static_cast<float>(own >> 6 & 63);
    for (size_t i = 0; i < 8; ++i) {
      const auto q = static_cast<float>(word(numbers, place) >> (4 * i) & 15);
      EXPECT_EQ(scale * q - less, want[chunk * 8 + i]) << place << " " << i;
    }
  }
}

// One each for few columns, many, a long sum; lavapipe takes long to compile them, so that each
// type has one of them unless SPLIT_LONG is set.
TEST_F(Vulkan, MatmulAgreesInTheShapesOfAGpu) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{257, 96}, {40, 2100}, {4200, 33}};
  constexpr DType kTypes[] = {DType::kF16};
  const auto device = device_with("SPLIT_VULKAN_DISABLE", "small_tiles");
  size_t next = 0;
  const auto expect_some = [&](std::span<const std::pair<int64_t, int64_t>> sizes,
                               std::span<const DType> types) {
    for (const DType& type : types) {
      const bool all = std::getenv("SPLIT_LONG") != nullptr;
      expect_products(*device, all ? sizes : sizes.subspan(next++ % sizes.size(), 1), {&type, 1});
    }
  };
  expect_some(kSizes, kTypes);
  // For each number of lanes: blocks in whole turns, and behind them chunks of some lanes.
  constexpr std::pair<int64_t, int64_t> kTurns[] = {{1100, 96}, {552, 2100}, {2400, 33}};
  constexpr DType kBlocks[] = {DType::kQ8_0, DType::kQ4_0};
  expect_some(kTurns, kBlocks);
  constexpr std::pair<int64_t, int64_t> kSuperTurns[] = {{1280, 96}, {768, 2100}, {2560, 33}};
  constexpr DType kSuperBlocks[] = {DType::kQ6_K, DType::kQ4_K};
  expect_some(kSuperTurns, kSuperBlocks);
}

// Halves of x and w are within 2^-11 of these, relatively. Blocks for each number of lanes: in
// whole turns, in some behind them, and half a block; super-blocks are whole.
TEST_F(Vulkan, MatmulByMatrixUnitsAgrees) {
  if (!has_matrix_units()) GTEST_SKIP() << "no matrix units";
  for (const auto& [inner, columns] : {std::pair<int64_t, int64_t>{1136, 96},
                                       {528, 2100},
                                       {2416, 48},
                                       {48, 32},
                                       {1280, 96},
                                       {768, 2100},
                                       {2304, 48}}) {
    for (const DType dtype :
         {DType::kF16, DType::kQ8_0, DType::kQ4_0, DType::kQ6_K, DType::kQ4_K}) {
      if (is_k_quant(dtype) != (inner % int64_t{kSuperBlock} == 0)) continue;
      Products products(*device_, inner, columns, dtype, true);
      products.units = true;
      const auto bench = products.bench();
      bench->run_reference(rows_only(Products::kRowCount));
      for (const Phase phase : {Phase::kPrompt, Phase::kGenerate}) {
        const std::string what = cat(inner, " x ", columns, " ", dtype_name(dtype),
                                     phase == Phase::kPrompt ? ", prompt" : ", generated");
        const std::vector<float> all = products.run(*bench, Products::kRowCount, phase);
        expect_close(all, bench->reference.values.at("y"), what, 1e-3);
        for (const uint32_t slice : {1u, 9u}) {
          expect_equal_bits(products.run(*bench, slice, phase), all, cat(what, " by ", slice));
        }
      }
    }
  }
}

// A prompt's rows are laid out by how many they are: K split over workgroups where it is deep, and
// for 128 rows of few columns; large tiles of many columns; the kernel for few rows.
TEST_F(Vulkan, MatrixUnitsGiveRowsTheSameBitsInEveryLayout) {
  if (!has_matrix_units()) GTEST_SKIP() << "no matrix units";
  constexpr uint32_t kMostRows = 300;
  for (const auto& [inner, columns] :
       {std::pair<int64_t, int64_t>{8240, 1056}, {2096, 2032}, {528, 6432}}) {
    for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
      Products products(*device_, inner, columns, dtype, true, kMostRows);
      products.units = true;
      const auto bench = products.bench();
      const std::vector<float> all = products.run(*bench, kMostRows);
      bench->run_reference(rows_only(kMostRows));
      const std::string what = cat(inner, " x ", columns, " ", dtype_name(dtype));
      expect_close(all, bench->reference.values.at("y"), what, 1e-3);
      for (const uint32_t slice : {30u, 60u, 100u, 200u}) {
        expect_equal_bits(products.run(*bench, slice), all, cat(what, " by ", slice));
      }
    }
  }
}

// Matrices in pieces of 128 columns of bytes, 256 of nibbles; their scales are bound apart.
TEST_F(Vulkan, BlocksInPiecesOrUnpackedWithoutHalvesGiveTheSameBits) {
  const auto small = device_with("SPLIT_VULKAN_MAX_RANGE", "350000");
  const auto by_words = device_with("SPLIT_VULKAN_DISABLE", "halves");
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ6_K, DType::kQ4_K}) {
    const int64_t inner = is_k_quant(dtype) ? 2048 : 2100;
    const Products whole(*device_, inner, 700, dtype, true);
    const Products pieces(*small, inner, 700, dtype, true);
    const std::vector<float> want = whole.run(*whole.bench(), Products::kRowCount);
    expect_equal_bits(pieces.run(*pieces.bench(), Products::kRowCount), want,
                      cat(dtype_name(dtype)));
    const Products words(*by_words, inner, 700, dtype, true);
    expect_equal_bits(words.run(*words.bench(), Products::kRowCount), want,
                      cat(dtype_name(dtype), " unpacked without halves"));
  }
}

// Scales that a half holds only without its leading one, which devices may take for 0.
TEST_F(Vulkan, KeepsTheSmallestScales) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    Products products(*device_, 64, 40, dtype, true);
    for (float& w : products.ws) w *= 1e-3f;
    for (float& b : products.bs) b = 0;
    const auto bench = products.bench();
    const std::vector<float> all = products.run(*bench, Products::kRowCount);
    bench->run_reference(rows_only(Products::kRowCount));
    EXPECT_GT(*std::max_element(all.begin(), all.end()), 1e-5f);
    expect_close(all, bench->reference.values.at("y"), cat(dtype_name(dtype)), 1e-9);
  }
}

// A text whose rows all see all of it, and windows; with `units` between products, where matrix
// units may compute all of it and the first product stores the keys and values.
TEST_F(Vulkan, AttentionSeesTheKeysOfEachRow) {
  Drawn drawn(*device_, 2);
  constexpr uint32_t kRowCount = 300;
  constexpr int64_t kInner = 32, kOut = 48;
  for (const bool units : {false, true}) {
    for (const auto& [heads, kv_heads, size, cache] :
         {std::tuple<int, int, int, DType>{3, 3, 16, DType::kF32},
          {1, 1, 25, DType::kF16},
          {4, 2, 64, DType::kF16},
          {2, 1, 128, DType::kF16}}) {
      if (!drawn.next()) continue;
      const int64_t channels = heads * size, kv_width = kv_heads * size;
      const int64_t inner = units ? kInner : channels + 2 * kv_width;
      const Tensor x = input("x", DType::kF32, {kRows, inner});
      const Tensor qkv =
          units ? matmul(relu(x), weight("a", DType::kF16, {kInner, channels + 2 * kv_width})) : x;
      const Tensor attended =
          attention(qkv, input("k", cache, {kv_width}), input("v", cache, {kv_width}),
                    {heads, kv_heads, size, 0.25f});
      const Tensor y =
          units ? matmul(attended, weight("w", DType::kF16, {channels, kOut})) : attended;
      Limits limits = Steps::limits(kRowCount);
      limits.matrix = units;
      Bench bench(*device_, limits);
      bench.add(compile("a", {{"y", y}}, device_->fuse_rules()), cache);
      const auto width = static_cast<size_t>(inner), out = static_cast<size_t>(y.dims()[1]);
      std::vector<float> xs, ws, as;
      for (uint32_t i = 0; i < kRowCount * width; ++i) xs.push_back(noise(i));
      for (uint32_t i = 0; i < channels * kOut; ++i) ws.push_back(noise(i + 31, 0.2f));
      bench.set("x", xs);
      for (uint32_t i = 0; i < kInner * (channels + 2 * kv_width); ++i) {
        as.push_back(noise(i + 77, 0.3f));
      }
      if (units) bench.set("w", ws), bench.set("a", as);
      bench.load();
      Steps steps;
      // Rows from `first` on that see what `seen` says.
      const auto run = [&](uint32_t first, uint32_t count, const auto& seen) {
        std::vector<float> got(count * out);
        RowBatch batch = steps.batch(0, static_cast<int32_t>(first), count);
        for (uint32_t i = 0; i < count; ++i) steps.seen[i] = seen(first + i);
        batch.in = bench.buffer("x");
        batch.in_bytes = std::as_bytes(std::span(xs).subspan(first * width, count * width));
        batch.out = bench.buffer("y");
        batch.out_bytes = std::as_writable_bytes(std::span(got));
        bench.run(batch);
        if (count == kRowCount) bench.run_reference(batch);
        return got;
      };
      for (const uint32_t window : {0u, 1u, 50u, 130u}) {
        const auto seen = [&](uint32_t position) {
          if (window == 0) return KeyRange{0, kRowCount};
          return KeyRange{position < window ? 0 : position + 1 - window, position + 1};
        };
        const std::string what = cat(heads, " heads of ", size, " ", dtype_name(cache), ", window ",
                                     window, units ? ", units" : "");
        const std::vector<float> all = run(0, kRowCount, seen);
        // Halves are rounded four times on the way; where a row sees one key, nothing averages
        // that.
        expect_close(all, bench.reference.values.at("y"), what,
                     !units        ? 3e-6
                     : window == 1 ? 2e-3
                                   : 1e-3,
                     units ? 2e-3 : 1e-5);
        for (const uint32_t count : {1u, 7u, 9u, 33u}) {
          for (const uint32_t first : {0u, 120u, kRowCount - count}) {
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(first * out);
            expect_equal_bits(run(first, count, seen),
                              {begin, begin + static_cast<std::ptrdiff_t>(count * out)},
                              cat(what, ", ", count, " rows from ", first));
          }
        }
      }
    }
  }
}

TEST_F(Vulkan, RefusesAttentionThatDoesNotFit) {
  const auto refusal = [&](int size, uint32_t pages_per_sequence) -> std::string {
    const Tensor y =
        attention(input("x", DType::kF32, {kRows, 3 * size}), input("k", DType::kF32, {size}),
                  input("v", DType::kF32, {size}), {1, 1, size, 0.25f});
    Limits limits = Steps::limits(8);
    limits.pages_per_sequence = pages_per_sequence;
    Bench bench(*device_, limits);
    bench.add(compile("a", {{"y", y}}, device_->fuse_rules()));
    bench.set("x", std::vector<float>(static_cast<size_t>(8 * 3 * size)));
    try {
      bench.load();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kDevice);
      return error.what();
    }
    return "none";
  };
  EXPECT_EQ(refusal(512, 8), "none");
  EXPECT_EQ(refusal(516, 8), "[vulkan] attention: heads of 516 elements, expected at most 512");
  // Parts of 128 keys' splits, an eighth of the pages: 128 parts of 1,024 splits, 48 bytes each.
  constexpr uint32_t kPages = 1 << 20;
  EXPECT_NE(refusal(8, kPages).find("1024 splits of 128 keys are joined in"), std::string::npos)
      << refusal(8, kPages);
}

}  // namespace
}  // namespace split::test
