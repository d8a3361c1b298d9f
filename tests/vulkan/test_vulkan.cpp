// The Vulkan device against the reference, on whatever device there is (a GPU or lavapipe):
// every op, matrices of odd sizes, attention over pages and splits, whole models, with bits that do
// not depend on the company a row is in. With the validation layers where they are installed.
#include "base/file.h"
#include "models/functional.h"
#include "tensor/topk.h"
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

TEST_F(Vulkan, EveryOpAgreesWithTheReference) {
  const float specials[] = {0.0f, -0.0f, 87.0f, -87.0f, INFINITY, -INFINITY, 1e-7f, 0.6249f, -4.3f};
  constexpr uint32_t kRowCount = 3;
  for (const int64_t columns : {1, 7, 256, 257, 4099}) {  // the last is more than lanes hold
    std::vector<NamedOutput> outputs;
    const Tensor x = input("x", DType::kF32, {kRows, columns});
    const Tensor z = input("z", DType::kF32, {kRows, columns});
    const Tensor finite = input("finite", DType::kF32, {kRows, columns});
    std::vector<Program> programs;
    for (size_t i = 0; i < op_table().size(); ++i) {
      const OpInfo& op = op_table()[i];
      const std::string name = cat(op.name, "_", i);
      if (op.kind == OpKind::kUnary) outputs = {{name, unary(static_cast<Op>(i), x)}};
      if (op.kind == OpKind::kBinary) outputs = {{name, binary(static_cast<Op>(i), x, z)}};
      if (op.kind == OpKind::kReduce) outputs = {{name, reduce(static_cast<Op>(i), finite)}};
      if (op.kind == OpKind::kView || op.kind == OpKind::kKernel) continue;
      programs.push_back(compile(name, outputs, device_->fuse_rules()));
    }
    Limits limits;
    limits.rows = kRowCount;
    Bench bench(*device_, limits);
    std::vector<float> xs, zs, finites;
    for (uint32_t i = 0; i < kRowCount * columns; ++i) {
      const size_t special = (i * 7 + i / 9) % 16;
      xs.push_back(special < std::size(specials) ? specials[special] : noise(i, 4.0f));
      zs.push_back(i % 5 == 0 ? noise(i + 99, 80.0f) : noise(i + 7777));
      finites.push_back(noise(i + 5));
    }
    bench.set("x", xs);
    bench.set("z", zs);
    bench.set("finite", finites);
    for (const Program& program : programs) bench.add(program);
    bench.load();
    bench.run(rows_only(kRowCount));
    bench.run_reference(rows_only(kRowCount));
    for (const Program& program : programs) {
      const auto& want = bench.reference.values.at(program.name);
      // A sum of `columns` terms of size 1 in another order.
      const double absolute = 1e-6 + 1e-7 * static_cast<double>(columns);
      expect_close(bench.read(program.name, want.size()), want, cat(program.name, " x ", columns),
                   program.name.rfind("sum", 0) == 0 ? absolute : 1e-6);
    }
  }
}

TEST_F(Vulkan, TopKIsExact) {
  constexpr uint32_t kRowCount = 9;
  for (const auto& [columns, k] :
       {std::pair<int64_t, int64_t>{1, 1}, {7, 7}, {257, 40}, {4096, 64}, {50257, 64}}) {
    const auto width = static_cast<size_t>(columns);
    std::vector<float> x;
    for (uint32_t i = 0; i < kRowCount * columns; ++i) x.push_back(noise(i, 4.0f));
    // Many equal ones, equal ones alone, and what is no number.
    for (size_t i = width; i < 2 * width; ++i) x[i] = std::round(x[i]);
    std::fill_n(x.begin() + 2 * columns, columns, -1.5f);
    for (size_t i = 3 * width; i < 4 * width; ++i) x[i] = i % 2 == 0 ? 0.0f : -0.0f;
    x[5 * width - 1] = std::nanf("");
    x[6 * width - 1] = -INFINITY;
    Limits limits;
    limits.rows = kRowCount;
    Bench bench(*device_, limits);
    bench.set("x", x);
    bench.add(compile("top", {{"y", topk(input("x", DType::kF32, {kRows, columns}), k)}},
                      device_->fuse_rules()));
    bench.load();
    for (const uint32_t rows : {1u, 5u, kRowCount}) {
      bench.run(rows_only(rows));
      std::vector<float> want(rows * 2 * static_cast<size_t>(k));
      for (uint32_t r = 0; r < rows; ++r) {
        topk_row(std::span(x).subspan(r * width, width),
                 std::span(want).subspan(r * want.size() / rows, want.size() / rows));
      }
      const auto got = bench.read("y", want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
            << columns << " columns, " << rows << " rows, [" << i << "] " << got[i] << " "
            << want[i];
      }
    }
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

// gelu(x w + b) over 33 rows, as one matrix and activations of noise make it.
struct Products {
  static constexpr uint32_t kRowCount = 33;
  Products(Device& device, int64_t inner, int64_t columns, DType dtype, bool transposed)
      : device(device), inner(inner), columns(columns), dtype(dtype), transposed(transposed) {
    const float scale = 1.0f / std::sqrt(static_cast<float>(inner));
    for (uint32_t i = 0; i < kRowCount * inner; ++i) xs.push_back(noise(i));
    for (uint32_t i = 0; i < inner * columns; ++i) ws.push_back(noise(i + 31, scale));
    for (uint32_t i = 0; i < columns; ++i) bs.push_back(noise(i + 77));
  }
  // Each row's product is a row of the matrix.
  void pick_elements() {
    std::fill(xs.begin(), xs.end(), 0.0f);
    for (uint32_t row = 0; row < kRowCount; ++row) xs[row * inner + row * 65 % inner] = 1;
  }
  std::unique_ptr<Bench> bench() const {
    const Tensor x = input("x", DType::kF32, {kRows, inner});
    const Tensor w = transposed ? transpose(weight("w", dtype, {columns, inner}))
                                : weight("w", dtype, {inner, columns});
    const DType vector = is_quantised(dtype) ? DType::kF32 : dtype;
    // Units take what was made for products alone.
    const Tensor y = gelu_new(matmul(units ? relu(x) : x, w) + weight("b", vector, {columns}));
    Limits limits;
    limits.rows = kRowCount;
    limits.matrix = limits.wide = units;
    auto bench = std::make_unique<Bench>(device, limits);
    bench->set("x", xs);
    bench->set("w", ws);
    bench->set("b", bs);
    bench->add(compile("m", {{"y", y}}, device.fuse_rules()));
    bench->load();
    return bench;
  }
  std::vector<float> run(Bench& bench, uint32_t slice, Phase phase = Phase::kPrompt) const {
    return in_slices(bench, xs, static_cast<size_t>(inner), static_cast<size_t>(columns), kRowCount,
                     slice, phase);
  }
  Device& device;
  int64_t inner, columns;
  DType dtype;
  bool transposed;
  bool units = false;  // matrix units may compute it
  std::vector<float> xs, ws, bs;
};

void expect_products(Device& device, std::span<const std::pair<int64_t, int64_t>> sizes,
                     std::span<const DType> dtypes) {
  for (const auto& [inner, columns] : sizes) {
    for (const DType dtype : dtypes) {
      for (const bool transposed : {false, true}) {
        if (is_quantised(dtype) && !transposed) continue;
        const std::string what = cat(inner, " x ", columns, " ", dtype_name(dtype), transposed);
        Products products(device, inner, columns, dtype, transposed);
        const auto bench = products.bench();
        const std::vector<float> all = products.run(*bench, Products::kRowCount);
        bench->run_reference(rows_only(Products::kRowCount));
        expect_close(all, bench->reference.values.at("y"), what, 2e-6);
        for (const uint32_t slice : {1u, 2u, 3u, 4u, 8u, 9u}) {
          expect_equal_bits(products.run(*bench, slice), all, cat(what, " by ", slice));
        }
        if (!is_quantised(dtype)) continue;
        // Reading blocks rounds nothing: where a row picks an element, the bits of the same value
        // as a float.
        products.pick_elements();
        const std::vector<float> picked = products.run(*products.bench(), Products::kRowCount);
        products.dtype = DType::kF32;
        products.ws = bench->rounded("w");
        expect_equal_bits(products.run(*products.bench(), Products::kRowCount), picked, what);
      }
    }
  }
}

TEST_F(Vulkan, MatmulAgreesAndRowsAreInvariant) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {
      {1, 1}, {7, 5}, {100, 257}, {257, 96}, {2100, 33}};
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0};
  expect_products(*device_, kSizes, kTypes);
}

// One each for few columns, many, a long sum; lavapipe takes long to compile them.
TEST_F(Vulkan, MatmulAgreesInTheShapesOfAGpu) {
  constexpr std::pair<int64_t, int64_t> kSizes[] = {{257, 96}, {40, 2100}, {4200, 33}};
  constexpr DType kTypes[] = {DType::kF16};
  const auto device = device_with("SPLIT_VULKAN_DISABLE", "small_tiles");
  expect_products(*device, kSizes, kTypes);
  // For each number of lanes: blocks in whole turns, and behind them chunks of some lanes.
  constexpr std::pair<int64_t, int64_t> kTurns[] = {{1100, 96}, {552, 2100}, {2400, 33}};
  constexpr DType kBlocks[] = {DType::kQ8_0, DType::kQ4_0};
  expect_products(*device, kTurns, kBlocks);
}

// Halves of x and w are within 2^-11 of these, relatively. Blocks for each number of lanes: in
// whole turns, in some behind them, and half a block.
TEST_F(Vulkan, MatmulByMatrixUnitsAgrees) {
  for (const auto& [inner, columns] :
       {std::pair<int64_t, int64_t>{1136, 96}, {528, 2100}, {2416, 48}, {48, 32}}) {
    for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
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

// Matrices in pieces of 128 columns of Q8_0, 256 of Q4_0; their scales are bound apart.
TEST_F(Vulkan, BlocksInPiecesGiveTheSameBits) {
  const auto small = device_with("SPLIT_VULKAN_MAX_RANGE", "350000");
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0}) {
    const Products whole(*device_, 2100, 700, dtype, true);
    const Products pieces(*small, 2100, 700, dtype, true);
    const std::vector<float> want = whole.run(*whole.bench(), Products::kRowCount);
    expect_equal_bits(pieces.run(*pieces.bench(), Products::kRowCount), want,
                      cat(dtype_name(dtype)));
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

TEST_F(Vulkan, AttentionAgreesAcrossPagesAndSplits) {
  struct Case {
    int heads, size;
    DType cache;
    int kv_heads;
  };
  for (const Case& c :
       {Case{3, 16, DType::kF32, 3}, Case{2, 20, DType::kF16, 2}, Case{1, 25, DType::kF32, 1},
        Case{1, 25, DType::kF16, 1}, Case{2, 64, DType::kF16, 2}, Case{1, 200, DType::kF32, 1},
        Case{6, 20, DType::kF32, 2}, Case{4, 64, DType::kF16, 1}}) {
    const int64_t channels = c.heads * c.size, kv_width = c.kv_heads * c.size;
    const std::string what =
        cat(c.heads, " heads over ", c.kv_heads, " of ", c.size, " ", dtype_name(c.cache));
    const Tensor qkv = input("x", DType::kF32, {kRows, channels + 2 * kv_width});
    const Tensor y =
        attention(qkv, input("k", c.cache, {kv_width}), input("v", c.cache, {kv_width}),
                  {c.heads, c.kv_heads, c.size, 0.25f});
    Bench bench(*device_, Steps::limits(300));
    bench.add(compile("a", {{"y", y}}, device_->fuse_rules()), c.cache);
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

// A text whose rows all see all of it, and windows; with `units` between products, where matrix
// units may compute all of it and the first product stores the keys and values.
TEST_F(Vulkan, AttentionSeesTheKeysOfEachRow) {
  constexpr uint32_t kRowCount = 300;
  constexpr int64_t kInner = 32, kOut = 48;
  for (const bool units : {false, true}) {
    for (const auto& [heads, kv_heads, size, cache] :
         {std::tuple<int, int, int, DType>{3, 3, 16, DType::kF32},
          {1, 1, 25, DType::kF16},
          {4, 2, 64, DType::kF16}}) {
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
        expect_close(all, bench.reference.values.at("y"), what, units ? 1e-3 : 3e-6,
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
  constexpr uint32_t kPages = 1 << 18;  // of 128 keys' splits an eighth, 12 bytes each
  EXPECT_NE(refusal(8, kPages).find("1 heads over 32768 splits"), std::string::npos)
      << refusal(8, kPages);
}

}  // namespace
}  // namespace split::test
