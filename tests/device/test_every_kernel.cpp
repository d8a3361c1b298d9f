// Every view and kernel on every registered device: each row of ops.def of these kinds has a test
// here.
#include <algorithm>
#include <cmath>
#include <set>

#include "device/drawn.h"
#include "device/every_device.h"
#include "device/kernel_values.h"
#include "support/products.h"
#include "support/run_program.h"

namespace split::test {
namespace {

// A new row of these kinds needs a test below, and its name here. Rows of gated DeltaNet have
// theirs in test_cpu_delta.cpp and vulkan/test_vulkan_states.cpp, and with head_part in
// models/test_qwen35.cpp.
TEST(EveryOp, HasATest) {
  const std::set<std::string_view> tested = {"gather",    "transpose", "columns",     "matmul",
                                             "attention", "rotate",    "norm_rotate", "topk",
                                             "conv_rows", "delta",     "head_part"};
  // Rows of the tensor library alone are held against PyTorch's goldens (tests/array).
  const std::set<std::string_view> library = {
#define COMPARE(name, ...) #name,
#define TERNARY(name, ...) #name,
#define VIEW(name, ...) #name,
#define KERNEL(name, ...) #name,
#include "tensor/library.def"
  };
  for (const OpInfo& op : op_table()) {
    if (library.contains(op.name)) continue;
    switch (op.kind) {
      case OpKind::kUnary:
        EXPECT_EQ(kUnaryReferences.count(op.name), 1u) << op.name;
        break;
      case OpKind::kBinary:
        EXPECT_EQ(kBinaryReferences.count(op.name), 1u) << op.name;
        break;
      case OpKind::kReduce:
        EXPECT_EQ(kReduceReferences.count(op.name), 1u) << op.name;
        break;
      default:
        EXPECT_EQ(tested.count(op.name), 1u) << op.name;
    }
  }
}

TEST_P(EveryDevice, TopKIsTheHeadOfTheSortedRow) {
  constexpr uint32_t kRowCount = 9;
  for (const int64_t columns : {1, 7, 256, 257, 4096, 50257}) {
    const auto width = static_cast<size_t>(columns);
    std::vector<float> x;
    for (uint32_t i = 0; i < kRowCount * width; ++i) x.push_back(noise(i, 4.0f));
    // Many equal ones, equal ones alone, both zeros, and what is no number.
    for (size_t i = width; i < 2 * width; ++i) x[i] = std::round(x[i]);
    std::fill_n(x.begin() + 2 * columns, columns, -1.5f);
    for (size_t i = 3 * width; i < 4 * width; ++i) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    x[5 * width - 1] = std::nanf("");
    x[6 * width - 1] = -kInfinity;
    for (const int64_t k :
         std::set<int64_t>{1, std::min<int64_t>(columns, 40), std::min<int64_t>(columns, 257)}) {
      Limits limits;
      limits.rows = kRowCount;
      Bench bench(*device_, limits);
      bench.set("x", x);
      bench.add(
          compile("top", {{"y", topk(input("x", DType::kF32, {kRows, columns}), k)}}, rules()));
      try {
        bench.load();
      } catch (const Error& error) {
        EXPECT_GT(k, 256) << error.what();  // a device may refuse so many
        continue;
      }
      for (const uint32_t rows : {1u, 5u, kRowCount}) {
        bench.run(rows_only(rows));
        const auto got = bench.read("y", rows * 2 * static_cast<size_t>(k));
        for (size_t row = 0; row < rows; ++row) {
          const float* const from = x.data() + row * width;
          std::vector<size_t> order(width);
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
            const bool finite_a = std::isfinite(from[a]), finite_b = std::isfinite(from[b]);
            return finite_a && finite_b ? from[a] > from[b] : !finite_a && finite_b;
          });
          const float* const y = got.data() + row * 2 * static_cast<size_t>(k);
          for (size_t i = 0; i < static_cast<size_t>(k); ++i) {
            ASSERT_TRUE(same_bits(y[i], from[order[i]])) << columns << " columns, row " << row;
            ASSERT_EQ(y[static_cast<size_t>(k) + i], static_cast<float>(order[i]))
                << columns << " columns, row " << row;
          }
        }
      }
    }
  }
}

TEST_P(EveryDevice, GathersRowsByEverySymbol) {
  constexpr int64_t kTable = 61, kPlaces = 330;
  constexpr uint32_t kRowCount = 9;
  for (const int64_t columns : {1, 7, 256, 257}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      Bench bench(*device_, Steps::limits(kRowCount));
      const Tensor by_token =
          gather(weight("t", dtype, {kTable, columns}), input("tokens", DType::kI32, {kRows}));
      const Tensor by_position =
          gather(weight("p", dtype, {kPlaces, columns}), input("positions", DType::kI32, {kRows}));
      const Tensor by_row = gather(input("x", DType::kF32, {kRows, columns}),
                                   input("out_rows", DType::kI32, {kOutRows}));
      bench.add(compile("a", {{"both", by_token + by_position}}, rules()));
      bench.add(compile("b", {{"some", neg(by_row)}}, rules()));
      std::vector<float> t, p, x;
      for (uint32_t i = 0; i < kTable * columns; ++i) t.push_back(noise(i));
      for (uint32_t i = 0; i < kPlaces * columns; ++i) p.push_back(noise(i + 5));
      for (uint32_t i = 0; i < kRowCount * columns; ++i) x.push_back(noise(i + 9));
      bench.set("t", t), bench.set("p", p), bench.set("x", x);
      bench.load();
      Steps steps;
      for (const uint32_t rows : {1u, 3u, kRowCount}) {
        RowBatch batch = steps.batch(0, 300, rows);
        const std::vector<uint32_t> wanted = {rows / 2, rows - 1};
        batch.out_rows = std::span(wanted).first(rows > 1 ? 2 : 1);
        bench.run(batch);
        bench.run_reference(batch);
        for (const char* name : {"both", "some"}) {
          const auto& want = bench.reference.values.at(name);
          expect_close(bench.read(name, want.size()), want,
                       cat(name, " ", dtype_name(dtype), " x ", columns), 0);
        }
      }
    }
  }
}

TEST_P(EveryDevice, ProductsAgreeAndRowsAreInvariant) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {
      {1, 1}, {7, 5}, {100, 257}, {257, 96}, {2100, 33}};
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0};
  Drawn drawn(*device_, 2);
  for (const auto& size : kSizes) {
    for (const DType& type : kTypes) {
      if (drawn.next()) expect_products(*device_, {&size, 1}, {&type, 1}, true);
    }
  }
}

TEST_P(EveryDevice, AttentionAgreesAcrossPagesAndSplits) {
  Drawn drawn(*device_, 3);
  struct Case {
    int heads, size;
    DType cache;
    int kv_heads;
    int window = 0;
    float cap = 0;
  };
  for (const Case& c :
       {Case{3, 16, DType::kF32, 3}, Case{2, 20, DType::kF16, 2}, Case{1, 25, DType::kF32, 1},
        Case{1, 25, DType::kF16, 1}, Case{2, 64, DType::kF16, 2}, Case{1, 200, DType::kF32, 1},
        Case{6, 20, DType::kF32, 2}, Case{4, 64, DType::kF16, 1}, Case{3, 20, DType::kF32, 1, 9},
        Case{2, 64, DType::kF16, 1, 150}, Case{2, 16, DType::kF32, 2, 130, 0.7f},
        Case{4, 128, DType::kF16, 2, 0, 2.0f}, Case{3, 32, DType::kQ8_0, 3},
        Case{4, 64, DType::kQ8_0, 2}, Case{2, 128, DType::kQ8_0, 1, 150, 2.0f}}) {
    if (!device_->supports_kv(c.cache) || !drawn.next()) continue;
    const int64_t channels = c.heads * c.size, kv_width = c.kv_heads * c.size;
    const std::string what = cat(c.heads, " heads over ", c.kv_heads, " of ", c.size, " ",
                                 dtype_name(c.cache), ", window ", c.window, ", cap ", c.cap);
    const Tensor qkv = input("x", DType::kF32, {kRows, channels + 2 * kv_width});
    const Tensor y = attention(columns(qkv, 0, channels), columns(qkv, channels, kv_width),
                               columns(qkv, channels + kv_width, kv_width),
                               input("k", c.cache, {kv_width}), input("v", c.cache, {kv_width}),
                               {c.heads, c.kv_heads, c.size, 0.25f, c.window, c.cap});
    Bench bench(*device_, Steps::limits(300));
    bench.add(compile("a", {{"y", y}}, rules()), c.cache);
    const auto width = static_cast<size_t>(channels + 2 * kv_width);
    const auto out = static_cast<size_t>(channels);
    std::vector<float> xs;
    for (uint32_t i = 0; i < 300 * width; ++i) {
      // Of blocks each has a scale of 1 / 128, and no number lies near the middle of two.
      const float number = i % 32 == 0 ? 127.0f : std::round(noise(i, 126.0f)) + 0.25f;
      xs.push_back(c.cache == DType::kQ8_0 ? number / 128 : noise(i));
    }
    bench.set("x", xs);
    bench.load();
    Steps steps;
    std::vector<float> want(300 * out);
    RowBatch batch = steps.batch(0, 0, 300);
    batch.out = bench.buffer("y");
    batch.out_bytes = std::as_writable_bytes(std::span(want));
    bench.run(batch);
    bench.run_reference(batch);
    // Keys in half precision differ by a rounding where a value lies near the middle of two. Over
    // blocks a device that keeps BF16 rounds queries and weights to it too.
    const bool rounds = c.cache == DType::kQ8_0 && device_->supports_kv(DType::kBF16);
    expect_close(want, bench.reference.values.at("y"), what, rounds ? 1e-2 : 3e-6);
    // The last rows again, on the keys that are there, in other company.
    for (const uint32_t count : {1u, 2u, 7u, 9u}) {
      std::vector<float> got(count * out);
      batch = steps.batch(0, static_cast<int32_t>(300 - count), count);
      batch.in = bench.buffer("x");
      batch.in_bytes = std::as_bytes(std::span(xs).last(count * width));
      batch.out = bench.buffer("y");
      batch.out_bytes = std::as_writable_bytes(std::span(got));
      bench.run(batch);
      expect_equal_bits(got, {want.end() - static_cast<std::ptrdiff_t>(count * out), want.end()},
                        cat(what, ", ", count, " rows"));
    }
  }
}

// Rows that see those behind them too, within a window or with a bias of places.
TEST_P(EveryDevice, AttentionBothWaysAgreesInAWindowAndWithABias) {
  constexpr uint32_t kRowCount = 300;
  constexpr int kHeads = 4;
  struct Case {
    int size, window;
    bool biased;
    DType cache;
  };
  for (const Case& c : {Case{20, 0, false, DType::kF32}, Case{20, 1, false, DType::kF32},
                        Case{20, 9, false, DType::kF16}, Case{64, 140, false, DType::kF16},
                        Case{20, 0, true, DType::kF32}, Case{64, 0, true, DType::kF16},
                        Case{64, 65, false, DType::kBF16}, Case{64, 0, true, DType::kBF16},
                        Case{32, 0, true, DType::kQ8_0}, Case{32, 33, true, DType::kQ8_0}}) {
    if (!device_->supports_kv(c.cache)) continue;
    const int64_t channels = kHeads * c.size, kv_width = 2 * c.size;
    const std::string what = cat("heads of ", c.size, ", ", dtype_name(c.cache), ", window ",
                                 c.window, c.biased ? ", biased" : "");
    const Tensor qkv = input("x", DType::kF32, {kRows, channels + 2 * kv_width});
    const Tensor bias = c.biased ? weight("bias", DType::kF32, {kBiasBuckets, kHeads}) : 0.0f;
    const Tensor y = attention(columns(qkv, 0, channels), columns(qkv, channels, kv_width),
                               columns(qkv, channels + kv_width, kv_width),
                               input("k", c.cache, {kv_width}), input("v", c.cache, {kv_width}),
                               {.heads = kHeads,
                                .kv_heads = 2,
                                .head_dim = c.size,
                                .scale = 0.25f,
                                .window = c.window,
                                .causal = false},
                               bias);
    Bench bench(*device_, Steps::limits(kRowCount));
    bench.add(compile("a", {{"y", y}}, rules()), c.cache);
    const auto width = static_cast<size_t>(channels + 2 * kv_width);
    const auto out = static_cast<size_t>(channels);
    std::vector<float> xs, biases;
    for (uint32_t i = 0; i < kRowCount * width; ++i) {
      const float number = i % 32 == 0 ? 127.0f : std::round(noise(i, 126.0f)) + 0.25f;
      xs.push_back(c.cache == DType::kQ8_0 ? number / 128 : noise(i));
    }
    for (uint32_t i = 0; i < kBiasBuckets * kHeads; ++i) biases.push_back(noise(i + 3, 2.0f));
    bench.set("x", xs), bench.set("bias", biases);
    bench.load();
    Steps steps;
    const std::vector<KeyRange> all(kRowCount, {0, kRowCount});
    std::vector<float> want(kRowCount * out);
    RowBatch batch = steps.batch(0, 0, kRowCount);
    batch.seen = all;
    batch.out = bench.buffer("y");
    batch.out_bytes = std::as_writable_bytes(std::span(want));
    bench.run(batch);
    bench.run_reference(batch);
    const bool blocks = c.cache == DType::kQ8_0 && device_->supports_kv(DType::kBF16);
    const bool rounds = blocks || c.cache == DType::kBF16;
    expect_close(want, bench.reference.values.at("y"), what, rounds ? 2e-2 : 3e-6);
    // Rows from the middle again, in other company.
    for (const uint32_t count : {1u, 2u, 7u, 9u}) {
      constexpr uint32_t kFirst = 121;
      std::vector<float> got(count * out);
      batch = steps.batch(0, kFirst, count);
      batch.seen = std::span(all).first(count);
      batch.in = bench.buffer("x");
      batch.in_bytes = std::as_bytes(std::span(xs).subspan(kFirst * width, count * width));
      batch.out = bench.buffer("y");
      batch.out_bytes = std::as_writable_bytes(std::span(got));
      bench.run(batch);
      const auto from = want.begin() + static_cast<std::ptrdiff_t>(kFirst * out);
      expect_equal_bits(got, {from, from + static_cast<std::ptrdiff_t>(count * out)},
                        cat(what, ", ", count, " rows"));
    }
  }
}

// One row over 131,072 keys, of which some are put there by rows that see the first alone; all
// others and their values are zeros.
TEST_P(EveryDevice, AttentionSeesManyKeys) {
  struct Case {
    int heads, kv_heads, size;
    uint32_t keys;
  };
  // Enough for both levels of the merge; as many as there may be on a GPU and with SPLIT_LONG.
  const bool few = !device_->is_gpu() && std::getenv("SPLIT_LONG") == nullptr;
  const uint32_t most = few ? 1 << 15 : 1 << 17;
  constexpr uint32_t kEach = 64;
  std::vector<Case> cases = {{2, 1, 32, 1 << 12}, {2, 1, 32, most}, {32, 8, 128, most}};
  if (device_->is_gpu()) cases.push_back({32, 32, 128, most});  // 2 GiB of keys and values
  for (const Case& c : cases) {
    const uint32_t keys = c.keys, apart = keys / 16;
    const int64_t channels = c.heads * c.size, kv_width = c.kv_heads * c.size;
    const auto width = static_cast<size_t>(channels + 2 * kv_width);
    const Tensor qkv = input("x", DType::kF32, {kRows, channels + 2 * kv_width});
    const Tensor y =
        attention(columns(qkv, 0, channels), columns(qkv, channels, kv_width),
                  columns(qkv, channels + kv_width, kv_width), input("k", DType::kF16, {kv_width}),
                  input("v", DType::kF16, {kv_width}), {c.heads, c.kv_heads, c.size, 0.05f});
    Limits limits;
    limits.rows = kEach;
    limits.pages = limits.pages_per_sequence = keys / kPageTokens;
    Bench bench(*device_, limits);
    bench.add(compile("a", {{"y", y}}, rules()), DType::kF16);
    bench.set("x", std::vector<float>(kEach * width));
    bench.load();
    for (const char* cache : {"ak", "av"}) {
      Buffer& buffer = *bench.buffer(cache);
      device_->write(buffer, 0, std::vector<std::byte>(buffer.size()));
    }
    std::vector<uint32_t> table(limits.pages);
    std::iota(table.begin(), table.end(), 0u);
    const std::vector<uint32_t> sequences(kEach, 0);
    const auto value = [&](uint32_t row, size_t column) {
      return f16_to_f32(f32_to_f16(noise(row * 31 + static_cast<uint32_t>(column) * 7919)));
    };
    std::vector<float> xs(kEach * width);
    const auto run = [&](uint32_t first, uint32_t rows, bool all, std::span<std::byte> out) {
      std::vector<int32_t> positions;
      std::vector<KeyRange> seen;
      for (uint32_t r = 0; r < rows; ++r) {
        positions.push_back(static_cast<int32_t>(first + r));
        seen.push_back({0, all ? first + r + 1 : 1});
        for (size_t i = 0; i < width; ++i) xs[r * width + i] = value(first + r, i);
      }
      RowBatch batch;
      batch.phase = Phase::kGenerate;
      batch.rows = rows;
      batch.positions = positions;
      batch.sequences = std::span(sequences).first(rows);
      batch.seen = seen;
      batch.page_tables = table;
      batch.in = bench.buffer("x");
      batch.in_bytes = std::as_bytes(std::span(xs).first(rows * width));
      if (!out.empty()) batch.out = bench.buffer("y"), batch.out_bytes = out;
      bench.run(batch);
    };
    for (uint32_t first = 0; first < keys; first += apart) run(first, kEach, false, {});
    std::vector<float> got(static_cast<size_t>(channels));
    run(keys - 1, 1, true, std::as_writable_bytes(std::span(got)));
    std::vector<double> want;
    for (int head = 0; head < c.heads; ++head) {
      const auto size = static_cast<size_t>(c.size);
      const size_t q = static_cast<size_t>(head) * size;
      const size_t k =
          static_cast<size_t>(channels) + static_cast<size_t>(head / (c.heads / c.kv_heads)) * size;
      const size_t v = k + static_cast<size_t>(kv_width);
      std::vector<double> sums(size);
      double total = 0;  // scores are small: no largest one is taken off
      for (uint32_t key = 0; key < keys; ++key) {
        if (key % apart >= kEach && key + 1 < keys) {
          total += 1;
          continue;
        }
        double score = 0;
        for (size_t i = 0; i < size; ++i)
          score += double{value(keys - 1, q + i)} * value(key, k + i);
        const double weight = std::exp(0.05 * score);
        total += weight;
        for (size_t i = 0; i < size; ++i) sums[i] += weight * value(key, v + i);
      }
      for (const double sum : sums) want.push_back(sum / total);
    }
    const std::string what = cat(c.heads, " heads over ", c.kv_heads, " of ", c.size);
    expect_close(got, want, what, 2e-6, 1e-4);
    // Behind two others, whose keys it sees then, and alone again.
    std::vector<float> three(3 * got.size());
    run(keys - 3, 3, true, std::as_writable_bytes(std::span(three)));
    run(keys - 1, 1, true, std::as_writable_bytes(std::span(got)));
    expect_equal_bits(got, {three.end() - static_cast<std::ptrdiff_t>(got.size()), three.end()},
                      cat(what, ", of three rows"));
  }
}

TEST_P(EveryDevice, RotatesHeadsByTheirRowsTables) {
  struct Case {
    int heads, size;
    std::optional<DType> norm;  // the type of its weights
    float plus = 0;
  };
  constexpr int64_t kPositions = 320;
  for (const Case& c : {Case{3, 10, {}}, Case{1, 64, {}}, Case{4, 16, DType::kF32},
                        Case{2, 128, DType::kBF16, 1.0f}, Case{3, 12, DType::kF16, 1.0f}}) {
    const int64_t width = c.heads * c.size, half = c.size / 2;
    const std::string what = cat(c.heads, " heads of ", c.size, ", plus ", c.plus);
    const Rotation rotation{weight("cos", DType::kF32, {kPositions, half}),
                            weight("sin", DType::kF32, {kPositions, half}),
                            input("positions", DType::kI32, {kRows})};
    // Some columns in the middle of the rows.
    const Tensor x = columns(input("x", DType::kF32, {kRows, width + 7}), 5, width);
    const Tensor y =
        c.norm ? rotate(x, {weight("w", *c.norm, {c.size}), 1e-3f, c.plus}, rotation, c.heads)
               : rotate(x, rotation, c.heads);
    Bench bench(*device_, Steps::limits(9));
    bench.add(compile("r", {{"y", y}}, rules()));
    std::vector<float> xs, cos, sin, w;
    for (uint32_t i = 0; i < 9 * (width + 7); ++i) xs.push_back(noise(i));
    for (uint32_t i = 0; i < kPositions * half; ++i) {
      cos.push_back(noise(i + 1)), sin.push_back(noise(i + 7));
    }
    for (uint32_t i = 0; i < static_cast<uint32_t>(c.size); ++i) w.push_back(noise(i + 3));
    bench.set("x", xs), bench.set("cos", cos), bench.set("sin", sin), bench.set("w", w);
    bench.load();
    Steps steps;
    for (const uint32_t rows : {1u, 2u, 7u, 9u}) {
      const RowBatch batch = steps.batch(0, 300, rows);
      bench.run(batch);
      bench.run_reference(batch);
      const auto& want = bench.reference.values.at("y");
      expect_close(bench.read("y", want.size()), want, cat(what, ", ", rows, " rows"), 2e-6);
    }
  }
}
}  // namespace
}  // namespace split::test
