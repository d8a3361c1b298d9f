// Every op and every model on every registered device, unasked. A new device is tested by its line
// of the registry (device/device.cpp), a new pointwise op or reduction by its row of ops.def and
// its line of support/op_references.h, a new model by its examples and its goldens. A device that
// is not there is skipped and says so. A device's own features are tested beside this.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "device/kernel_values.h"
#include "run/layer_schedule.h"
#include "support/golden_model.h"
#include "support/op_references.h"
#include "support/products.h"

namespace split::test {
namespace {

std::vector<std::string> device_kind_names() {
  std::vector<std::string> names;
  for (const DeviceKind& kind : device_kinds()) names.emplace_back(kind.name);
  return names;
}

// The device of a kind, or null with a reason to skip.
std::unique_ptr<Device> device_of(const std::string& kind, std::string& why_not) {
  try {
    return make_device({kind, 2});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    why_not = error.what();
    return nullptr;
  }
}

class EveryDevice : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    std::string why_not;
    device_ = device_of(GetParam(), why_not);
    if (!device_) GTEST_SKIP() << why_not;
  }
  FuseRules rules() const { return device_->fuse_rules(); }
  std::unique_ptr<Device> device_;
};

// --- Pointwise ops and reductions

// Values that GLSL makes promises about: numbers below the smallest normal one, and what is no
// number, are left to the CPU's own tests.
constexpr float kOften[] = {0.0f,       -0.0f, 87.0f,   -87.0f, kInfinity,
                            -kInfinity, 1e-7f, 0.6249f, -4.3f};

std::vector<float> mixed(size_t n, uint32_t seed) {
  std::vector<float> values;
  for (uint32_t i = 0; i < n; ++i) {
    const uint32_t pick = (i * 7 + i / 9 + seed) % 16;
    values.push_back(pick < std::size(kOften) ? kOften[pick] : noise(i + seed * 7919, 4.0f));
  }
  return values;
}

// The last is more than a GPU's lanes hold.
constexpr int64_t kColumns[] = {1, 5, 7, 256, 257, 4099};
constexpr uint32_t kRowCounts[] = {1, 3, 5};
constexpr uint32_t kMostRows = 5;

// Results of one or several kernels, by name: alone where `alone`, else a few in each kernel, since
// a software GPU takes a tenth of a second to compile one.
std::vector<Program> programs_of(const std::vector<NamedOutput>& outputs, bool alone,
                                 const FuseRules& rules) {
  const size_t each = alone ? 1 : 6;  // with inputs, fewer buffers than every GPU binds
  std::vector<Program> programs;
  for (size_t i = 0; i < outputs.size(); i += each) {
    const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(i);
    const auto end = first + static_cast<std::ptrdiff_t>(std::min(each, outputs.size() - i));
    programs.push_back(compile(cat("p", i), {first, end}, rules));
  }
  return programs;
}

// Compares each output with the reference, for each set of values.
void expect_as_reference(Device& device, const std::vector<Program>& programs,
                         const std::vector<Values>& sets, const std::string& what) {
  Limits limits;
  limits.rows = kMostRows;
  Bench bench(device, limits);
  for (const auto& [name, given] : sets[0]) bench.set(name, given);
  for (const Program& program : programs) bench.add(program);
  bench.load();
  for (const Values& values : sets) {
    for (const auto& [name, given] : values) {
      if (&values != &sets[0]) bench.write(name, given);
    }
    for (const uint32_t rows : kRowCounts) {
      bench.run(rows_only(rows));
      bench.run_reference(rows_only(rows));
      for (const Program& program : programs) {
        for (const Slot& slot : program.slots) {
          if (slot.kind != SlotKind::kOutput) continue;
          const auto& want = bench.reference.values.at(slot.name);
          expect_close(bench.read(slot.name, want.size()), want, slot.name + what);
        }
      }
    }
  }
}

TEST_P(EveryDevice, UnaryRowsAgreeWithDouble) {
  for (const int64_t columns : kColumns) {
    std::vector<NamedOutput> outputs;
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    for (const Op op : ops_of(OpKind::kUnary)) {
      outputs.push_back({std::string(op_info(op).name), unary(op, x)});
    }
    std::vector<Values> sets;
    for (uint32_t seed = 0; seed < 3; ++seed) {
      sets.push_back({{"x", mixed(static_cast<size_t>(kMostRows * columns), seed)}});
    }
    expect_as_reference(*device_, programs_of(outputs, columns == 257, rules()), sets,
                        cat(" x ", columns));
  }
}

TEST_P(EveryDevice, BinaryRowsAgreeWithDoubleHoweverBroadcast) {
  for (const int64_t columns : kColumns) {
    const auto size = static_cast<size_t>(kMostRows * columns);
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    const std::pair<const char*, Tensor> sides[] = {
        {"rows", input("rows", DType::kF32, {kRows, columns})},
        {"vector", weight("vector", DType::kF32, {columns})},
        {"each", input("each", DType::kF32, {kRows, 1})},
        {"constant", Tensor(0.75f)}};
    for (const auto& [side, z] : sides) {
      std::vector<NamedOutput> outputs;
      for (const bool left : {false, true}) {
        for (const Op op : ops_of(OpKind::kBinary)) {
          outputs.push_back({cat(op_info(op).name, left ? " of left " : " of right ", side),
                             left ? binary(op, z, x) : binary(op, x, z)});
        }
      }
      const bool alone = columns == 7 && side == std::string("rows");
      expect_as_reference(*device_, programs_of(outputs, alone, rules()),
                          {{{"x", mixed(size, 3)},
                            {"rows", mixed(size, 14)},
                            {"vector", mixed(static_cast<size_t>(columns), 14)},
                            {"each", mixed(kMostRows, 14)}}},
                          cat(" x ", columns));
    }
  }
}

TEST_P(EveryDevice, ReductionsAgreeWithDouble) {
  for (const int64_t columns : kColumns) {
    const auto width = static_cast<size_t>(columns);
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    Limits limits;
    limits.rows = kMostRows;
    Bench bench(*device_, limits);
    bench.set("x", std::vector<float>(kMostRows * width));
    // Alone, and spread over its row again.
    for (const Op op : ops_of(OpKind::kReduce)) {
      const std::string name(op_info(op).name);
      bench.add(compile(name, {{name, reduce(op, x)}, {name + "+", neg(x) * 0.0f + reduce(op, x)}},
                        rules()));
    }
    bench.load();
    for (const uint32_t rows : kRowCounts) {
      for (const float special : {0.0f, 87.0f, -kInfinity, kInfinity}) {
        auto in = ordinary(kMostRows * width, 5);
        if (special != 0) in[rows * width - 1] = special;
        bench.write("x", in);
        bench.run(rows_only(rows));
        for (const Op op : ops_of(OpKind::kReduce)) {
          const std::string name(op_info(op).name);
          const ReduceReference& expected = reference(kReduceReferences, name);
          const auto y = bench.read(name, rows), spread = bench.read(name + "+", rows * width);
          for (size_t row = 0; row < rows; ++row) {
            double want = expected.start, size = 0;
            for (size_t c = 0; c < width; ++c) {
              want = expected.combine(want, in[row * width + c]);
              size += std::abs(in[row * width + c]);
            }
            // A sum is close for the size of what is summed, in whatever order.
            const double absolute = std::isinf(size) ? 1e-6 : 1e-6 + 2e-7 * size;
            expect_close({y[row]}, {want}, cat(name, " x ", columns), absolute);
            if (std::isinf(special) && row + 1 == rows) continue;  // 0 x inf
            for (size_t c = 0; c < width; ++c) {
              ASSERT_EQ(spread[row * width + c], y[row]) << name << " x " << columns;
            }
          }
        }
      }
    }
  }
}

// --- Views and kernels

// A new row of these kinds needs a test below, and its name here.
TEST(EveryOp, HasATest) {
  const std::set<std::string_view> tested = {"gather",    "transpose", "columns",     "matmul",
                                             "attention", "rotate",    "norm_rotate", "topk"};
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
  expect_products(*device_, kSizes, kTypes, true);
}

TEST_P(EveryDevice, AttentionAgreesAcrossPagesAndSplits) {
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
        Case{4, 128, DType::kF16, 2, 0, 2.0f}}) {
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
    for (uint32_t i = 0; i < 300 * width; ++i) xs.push_back(noise(i));
    bench.set("x", xs);
    bench.load();
    Steps steps;
    std::vector<float> want(300 * out);
    RowBatch batch = steps.batch(0, 0, 300);
    batch.out = bench.buffer("y");
    batch.out_bytes = std::as_writable_bytes(std::span(want));
    bench.run(batch);
    bench.run_reference(batch);
    // Keys in half precision differ by a rounding where a value lies near the middle of two.
    expect_close(want, bench.reference.values.at("y"), what, 3e-6);
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

// --- Models

// All stages of a model over random weights, each a Program, on the device and in the reference.
class Stages {
 public:
  Stages(Device& device, const Model& model, DType dtype, DType cache, const Limits& limits)
      : bench_(device, limits) {
    const auto type = [&](const std::string& name) {
      return is_quantised(dtype) && model.weight(name).product == Product::kNone ? DType::kF32
                                                                                 : dtype;
    };
    const auto& stages = model.stages();
    std::string last = "hidden";  // what the stage before left
    for (size_t i = 0; i < stages.size(); ++i) {
      if (i + 1 < stages.size() && stages[i + 1].joins_last) continue;
      Program program =
          compile(stages[i].name, {stages[i].trace({type, cache})}, device.fuse_rules());
      const std::string result = cat("state.", i);
      for (Slot& slot : program.slots) {
        if (slot.kind == SlotKind::kInput && slot.name == "hidden") slot.name = last;
        if (slot.kind == SlotKind::kOutput) slot.name = result;
      }
      last = result;
      width_ = static_cast<size_t>(stages[i].width);
      bench_.add(program, cache);
    }
    result_ = last;
    uint32_t seed = 1;
    for (const Blob& blob : model.blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        const Dims dims = decl.first_row ? Dims{decl.dims[1]} : decl.dims;
        std::vector<float> values(static_cast<size_t>(*element_count(dims)));
        for (float& value : values) value = noise(seed++, dims.size() == 1 ? 1.0f : 0.4f);
        bench_.set(decl.name, values);
      }
    }
    for (const Constant& constant : model.constants()) bench_.set(constant.name, constant.values);
    bench_.load();
  }
  void expect_as_reference(const RowBatch& batch, double bound, const std::string& what) {
    bench_.run(batch);
    bench_.run_reference(batch);
    const auto got = bench_.read(result_, batch.out_rows.size() * width_);
    expect_close(got, bench_.reference.values.at(result_), what, bound, bound);
  }

 private:
  Bench bench_;
  std::string result_;
  size_t width_ = 0;
};

// The examples that every model of the registry gives of itself; in half precision some of them
// where a software GPU compiles the kernels.
TEST_P(EveryDevice, ModelsComputeTheirGraphs) {
  const bool few = device_->can_be_lost() && !device_->is_gpu() && !std::getenv("SPLIT_LONG");
  size_t examples = 0;
  for (const std::string& config : example_configs()) {
    const auto model = make_model(config);
    const bool halves = !few || examples++ % 3 == 0;
    for (const DType dtype : {DType::kF32, DType::kF16}) {
      if (dtype == DType::kF16 && !halves) continue;
      const DType cache = dtype;
      const std::string what = cat(dtype_name(dtype), " ", config);
      Limits limits = Steps::limits(8);
      Stages stages(*device_, *model, dtype, cache, limits);
      Steps steps;
      RowBatch batch = steps.batch(0, 0, 5);
      std::vector<int32_t> tokens = {1, 5, 0, 7, 2};
      batch.tokens = tokens;
      stages.expect_as_reference(batch, 2e-5, what);
      if (model->config().encodes()) continue;  // keeps no rows to go on from
      tokens = {3};
      batch = steps.batch(0, 5, 1);
      batch.phase = Phase::kGenerate;
      batch.tokens = tokens;
      stages.expect_as_reference(batch, 2e-5, what);
    }
  }
}

const std::string kGoldens[] = {"demo", "rand-a", "rand-b", "rand-c"};
// Those of tests/models and tests/run/test_encoders.
const std::string kFamilies[] = {"bert", "llama3", "qwen2", "qwen3", "mistral", "gemma2", "gemma3"};

TEST(EveryModel, HasGoldens) {
  std::set<std::string> golden;
  for (const std::string& name : kGoldens) golden.insert(Golden(name).model->config().model_type);
  for (const std::string& name : kFamilies) {
    golden.insert(Golden("models/" + name).model->config().model_type);
  }
  for (const std::string& config : example_configs()) {
    const std::string type = make_model(config)->config().model_type;
    EXPECT_TRUE(golden.count(type) != 0) << "no golden is of " << type;
  }
}

// Shards against what PyTorch computes (tests/golden), for every point and every cut.
class Goldens : public testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  void SetUp() override {
    const std::string kind = std::get<0>(GetParam()), model = std::get<1>(GetParam());
    std::string why_not;
    device_ = device_of(kind, why_not);
    if (!device_) GTEST_SKIP() << why_not;
    const bool gpus = std::ranges::any_of(
        device_kinds(), [&](const DeviceKind& one) { return one.name == kind && one.gpus; });
    if (gpus && !device_->is_gpu() && model == "demo" && std::getenv("SPLIT_LONG") == nullptr) {
      GTEST_SKIP() << device_->name() << " takes minutes for the demo model: SPLIT_LONG=1 runs it";
    }
    golden_ = std::make_unique<Golden>(model);
  }
  int layers() const { return golden_->model->config().layers; }
  size_t channels() const { return static_cast<size_t>(golden_->model->config().channels); }
  Shard shard(const StageRange& range = {}) const {
    return {*device_, *golden_->model, golden_->weights(), options_for(*golden_->model, range)};
  }
  std::unique_ptr<Device> device_;
  std::unique_ptr<Golden> golden_;
};

// A sequence of one shard, through its batcher.
struct Line {
  explicit Line(Shard& shard) : batcher(shard), shard(shard), id(shard.pages().open()) {}
  ~Line() { shard.pages().close(id); }
  std::vector<float> run(const SequenceRows& rows) { return append(batcher, id, rows); }
  Batcher batcher;
  Shard& shard;
  SequenceId id;
};

std::vector<double> log_softmax(std::span<const float> logits) {
  double largest = -1e300, sum = 0;
  for (const float x : logits) largest = std::max(largest, double(x));
  for (const float x : logits) sum += std::exp(x - largest);
  std::vector<double> out;
  for (const float x : logits) out.push_back(x - largest - std::log(sum));
  return out;
}

int32_t argmax(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST_P(Goldens, HiddenStatesAtEveryPointAgree) {
  Shard whole = shard();
  for (int p = 0; p < golden_->prompts(); ++p) {
    const auto ids = golden_->values<int32_t>(cat("p", p, ".ids"));
    const auto last = golden_->values<float>(cat("p", p, ".hidden_last"));
    for (int point = 0; point <= Point::norm().stage(layers()); ++point) {
      Line line(whole);
      const Point to = point > layers() ? Point::norm() : Point(point);
      const auto all = line.run({.range = {.to = to}, .tokens = ids, .wanted = Wanted::kAll});
      const std::span got = std::span(all).last(channels());
      EXPECT_LT(relative(got, std::span(last).subspan(point * channels(), channels())), 2e-5)
          << "prompt " << p << " point " << to.name();
      if (!golden_->has(cat("p", p, ".hidden_all"))) continue;
      const auto expected = golden_->values<float>(cat("p", p, ".hidden_all"));
      for (size_t t = 0; t < ids.size(); ++t) {
        const size_t at = (point * ids.size() + t) * channels();
        EXPECT_LT(relative(std::span(all).subspan(t * channels(), channels()),
                           std::span(expected).subspan(at, channels())),
                  2e-4);
      }
    }
  }
}

TEST_P(Goldens, LogProbabilitiesAndGreedyTextAgreeForEveryCut) {
  for (int cut = 0; cut <= layers(); ++cut) {
    const StageRange below{.to = cut}, above{cut, Point::head()};
    Shard cloud = shard(below), edge = shard(above);
    for (int p = 0; p < golden_->prompts(); ++p) {
      auto ids = golden_->values<int32_t>(cat("p", p, ".ids"));
      Line head(cloud), tail(edge);
      const auto step = [&](std::span<const int32_t> tokens) {
        const auto hidden = head.run({.range = below, .tokens = tokens, .wanted = Wanted::kAll});
        return tail.run(
            {.range = above, .hidden = hidden, .width = static_cast<uint32_t>(channels())});
      };
      std::vector<float> logits = step(ids);
      const auto expected = golden_->values<float>(cat("p", p, ".logprobs_last"));
      const auto got = log_softmax(logits);
      for (size_t v = 0; v < expected.size(); ++v) ASSERT_NEAR(got[v], expected[v], 2e-3);
      const auto greedy = golden_->values<int32_t>(cat("p", p, ".greedy_ids"));
      const auto margin = golden_->values<float>(cat("p", p, ".greedy_margin"));
      for (size_t i = 0; i < greedy.size() && margin[i] > 2e-4; ++i) {
        const int32_t next = argmax(logits);
        ASSERT_EQ(next, greedy[i]) << "cut " << cut << " prompt " << p << " token " << i;
        if (i + 1 < greedy.size()) logits = step(std::span(&next, 1));
      }
    }
  }
}

// Steps to any point together, cuts, and fills: the bits of plain steps.
TEST_P(Goldens, BlocksGetTheirRowsInAnyOrder) {
  for (const Profile profile : {Profile::kF32, Profile::kF16}) {
    ShardOptions options = options_for(*golden_->model);
    options.profile = profile;
    Shard shard(*device_, *golden_->model, golden_->weights(), options);
    LayerSchedule(shard, 7).run(device_->can_be_lost() && !device_->is_gpu() ? 12 : 40);
  }
}

INSTANTIATE_TEST_SUITE_P(Registered, EveryDevice, testing::ValuesIn(device_kind_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Registered, Goldens,
                         testing::Combine(testing::ValuesIn(device_kind_names()),
                                          testing::ValuesIn(kGoldens)),
                         [](const auto& info) {
                           std::string name =
                               cat(std::get<0>(info.param), "_", std::get<1>(info.param));
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace split::test
