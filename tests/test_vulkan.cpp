// The Vulkan device against the reference, on whatever device there is (a GPU or lavapipe):
// every op, matrices of odd sizes, attention over pages and splits, whole models, with bits that do
// not depend on the company a row is in. With the validation layers where they are installed.
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <list>
#include <numeric>

#include "base/file.h"
#include "device/device.h"
#include "device/vulkan/context.h"
#include "device/vulkan/queue.h"
#include "io/quantize.h"
#include "nn/functional.h"
#include "nn/model.h"
#include "reference_device.h"

namespace split {
namespace {

using test::Reference;

float noise(uint32_t i, float scale = 1.0f) {
  i ^= i >> 16;
  i *= 0x7feb352du;
  i ^= i >> 15;
  i *= 0x846ca68bu;
  i ^= i >> 16;
  return (static_cast<float>(i & 0xffff) / 32768.0f - 1.0f) * scale;
}

bool has_layer() {
  uint32_t count = 0;
  vkEnumerateInstanceLayerProperties(&count, nullptr);
  std::vector<VkLayerProperties> all(count);
  vkEnumerateInstanceLayerProperties(&count, all.data());
  return std::any_of(all.begin(), all.end(), [](const VkLayerProperties& layer) {
    return std::string_view(layer.layerName) == "VK_LAYER_KHRONOS_validation";
  });
}

// Programs on a device with everything they name, and the same in the reference.
class Bench {
 public:
  explicit Bench(Device& device, const Limits& limits) : device_(device), limits_(limits) {}

  void add(const Program& program, DType cache = DType::kF32) {
    limits_.arena_row_bytes = std::max(limits_.arena_row_bytes, program.arena_row_bytes);
    programs_.push_back(program);
    cache_ = cache;
  }
  // Values of a weight (rounded to its type) or of a rowwise input.
  void set(const std::string& name, std::vector<float> values) { given_[name] = std::move(values); }

  void load() {
    workspace_ = device_.workspace(limits_);
    for (const Program& program : programs_) {
      std::vector<Binding> bindings;
      for (const Slot& slot : program.slots) {
        if (slot.kind == SlotKind::kTemp || slot.dtype == DType::kI32) continue;
        const std::string key = slot.dims.size() == 1 && slot.kind == SlotKind::kInput
                                    ? program.name + slot.name
                                    : slot.name;
        if (buffers_.count(key) == 0) buffers_[key] = make(slot);
        bindings.push_back({slot.name, buffers_[key].get()});
      }
      executables_.push_back(device_.load(program, *workspace_, bindings));
    }
  }

  void run(const RowBatch& batch) {
    std::vector<Executable*> all;
    for (const auto& executable : executables_) all.push_back(executable.get());
    device_.run(*workspace_, all, batch);
  }
  void run_reference(const RowBatch& batch) {
    for (const Program& program : programs_) reference.run(program, batch);
  }

  void write(const std::string& name, const std::vector<float>& values) {
    device_.write(*buffers_.at(name), 0, std::as_bytes(std::span(values)));
  }
  std::vector<float> read(const std::string& name, size_t count) {
    std::vector<float> values(count);
    device_.read(*buffers_.at(name), 0, std::as_writable_bytes(std::span(values)));
    return values;
  }
  Buffer* buffer(const std::string& name) { return buffers_.at(name).get(); }
  // A weight's values as its type holds them.
  const std::vector<float>& rounded(const std::string& name) const { return rounded_.at(name); }

  Reference reference;

 private:
  std::unique_ptr<Buffer> make(const Slot& slot) {
    if (slot.kind == SlotKind::kWeight) {
      const std::vector<float>& values = given_.at(slot.name);
      const TensorView view{DType::kF32, slot.dims, std::as_bytes(std::span(values))};
      const bool blocks = is_quantised(slot.dtype);
      const OwnedTensor& stored = storage_.emplace_back(
          blocks ? quantised(view, slot.dtype, false, slot.name) : converted(view, slot.dtype));
      const OwnedTensor wide =
          blocks ? dequantised(stored.view) : converted(stored.view, DType::kF32);
      std::vector<float>& rounded = rounded_[slot.name];
      rounded.resize(values.size());
      std::memcpy(rounded.data(), wide.storage.data(), wide.storage.size());
      reference.values[slot.name] = {rounded.begin(), rounded.end()};
      return device_.upload(slot, stored.view);
    }
    if (slot.dims.size() == 1) return device_.alloc_pages(limits_, slot.dims[0], cache_);
    auto buffer = device_.alloc(size_t{limits_.rows} * static_cast<size_t>(slot.dims[1]) * 4);
    if (const auto at = given_.find(slot.name); at != given_.end()) {
      device_.write(*buffer, 0, std::as_bytes(std::span(at->second)));
      reference.values[slot.name] = {at->second.begin(), at->second.end()};
    }
    return buffer;
  }

  Device& device_;
  Limits limits_;
  DType cache_ = DType::kF32;
  std::vector<Program> programs_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<std::unique_ptr<Executable>> executables_;
  std::map<std::string, std::unique_ptr<Buffer>> buffers_;
  std::map<std::string, std::vector<float>> given_;
  std::list<OwnedTensor> storage_;
  std::map<std::string, std::vector<float>> rounded_;
};

void expect_close(const std::vector<float>& got, const std::vector<double>& want,
                  const std::string& what, double absolute = 1e-6, double relative = 1e-5) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const auto w = static_cast<double>(static_cast<float>(want[i]));
    if (std::isnan(w) && std::isnan(got[i])) continue;
    if (std::isinf(w) && double{got[i]} == w) continue;
    const double bound = std::max(absolute, relative * std::fabs(w));
    ASSERT_LE(std::fabs(got[i] - w), bound)
        << what << " [" << i << "] got " << got[i] << " want " << w;
  }
}

class Vulkan : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (has_layer()) setenv("SPLIT_VALIDATE", "1", 1);
  }
  void SetUp() override {
    if (list_vulkan_devices().empty()) GTEST_SKIP() << "no Vulkan driver";
    device_ = make_vulkan_device("any");
  }
  void TearDown() override {
    device_.reset();
    EXPECT_EQ(vulkan::validation_messages(), 0u);
  }
  // The device as it is with `value` of an environment variable.
  static std::unique_ptr<Device> device_with(const char* variable, const char* value) {
    setenv(variable, value, 1);
    auto device = make_vulkan_device("any");
    unsetenv(variable);
    return device;
  }
  std::unique_ptr<Device> device_;
};

RowBatch rows_only(uint32_t rows) {
  RowBatch batch;
  batch.rows = rows;
  return batch;
}

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
  for (const int64_t columns : {1, 7, 256, 257}) {
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

TEST_F(Vulkan, GroupsMixRowsVectorsAndReductions) {
  for (const int64_t columns : {1, 5, 96, 300}) {
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

// Runs rows of "x" through the program in slices of `slice`, and returns output "y".
std::vector<float> in_slices(Bench& bench, const std::vector<float>& x, size_t columns, size_t out,
                             uint32_t rows, uint32_t slice) {
  std::vector<float> result;
  for (uint32_t first = 0; first < rows; first += slice) {
    const uint32_t count = std::min(slice, rows - first);
    RowBatch batch = rows_only(count);
    std::vector<float> y(count * out);
    batch.in = bench.buffer("x");
    batch.in_bytes = std::as_bytes(std::span(x).subspan(first * columns, count * columns));
    batch.out = bench.buffer("y");
    batch.out_bytes = std::as_writable_bytes(std::span(y));
    bench.run(batch);
    result.insert(result.end(), y.begin(), y.end());
  }
  return result;
}

void expect_equal_bits(const std::vector<float>& a, const std::vector<float>& b,
                       const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << " [" << i << "] " << a[i] << " and " << b[i];
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
  std::unique_ptr<Bench> bench() const {
    const Tensor x = input("x", DType::kF32, {kRows, inner});
    const Tensor w = transposed ? transpose(weight("w", dtype, {columns, inner}))
                                : weight("w", dtype, {inner, columns});
    const DType vector = is_quantised(dtype) ? DType::kF32 : dtype;
    const Tensor y = gelu_new(matmul(x, w) + weight("b", vector, {columns}));
    Limits limits;
    limits.rows = kRowCount;
    auto bench = std::make_unique<Bench>(device, limits);
    bench->set("x", xs);
    bench->set("w", ws);
    bench->set("b", bs);
    bench->add(compile("m", {{"y", y}}, device.fuse_rules()));
    bench->load();
    return bench;
  }
  std::vector<float> run(Bench& bench, uint32_t slice) const {
    return in_slices(bench, xs, static_cast<size_t>(inner), static_cast<size_t>(columns), kRowCount,
                     slice);
  }
  Device& device;
  int64_t inner, columns;
  DType dtype;
  bool transposed;
  std::vector<float> xs, ws, bs;
};

TEST_F(Vulkan, MatmulAgreesAndRowsAreInvariant) {
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1}, {7, 5}, {100, 257}, {257, 96}, {2100, 33}};
  for (const auto& [inner, columns] : sizes) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0}) {
      for (const bool transposed : {false, true}) {
        if (is_quantised(dtype) && !transposed) continue;
        const std::string what = cat(inner, " x ", columns, " ", dtype_name(dtype), transposed);
        Products products(*device_, inner, columns, dtype, transposed);
        const auto bench = products.bench();
        const std::vector<float> all = products.run(*bench, Products::kRowCount);
        bench->run_reference(rows_only(Products::kRowCount));
        expect_close(all, bench->reference.values.at("y"), what, 2e-6);
        for (const uint32_t slice : {1u, 2u, 3u, 4u, 8u, 9u}) {
          expect_equal_bits(products.run(*bench, slice), all, cat(what, " by ", slice));
        }
        if (!is_quantised(dtype)) continue;
        // Reading blocks rounds nothing: the bits of the same values as floats.
        products.dtype = DType::kF32;
        products.ws = bench->rounded("w");
        expect_equal_bits(products.run(*products.bench(), Products::kRowCount), all, what);
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

// Rows of two sequences, pages handed out in no order.
struct Steps {
  static constexpr uint32_t kPages = 48, kTable = 20;
  std::vector<uint32_t> tables = std::vector<uint32_t>(2 * kTable);
  std::vector<int32_t> positions, tokens;
  std::vector<uint32_t> sequences, out_rows;

  Steps() {
    for (uint32_t i = 0; i < tables.size(); ++i) tables[i] = i * 29 % (kPages - 1) + 1;
  }
  static Limits limits(uint32_t rows) {
    Limits limits;
    limits.rows = rows;
    limits.sequences = 2;
    limits.pages_per_sequence = kTable;
    limits.pages = kPages;
    return limits;
  }
  RowBatch batch(uint32_t sequence, int32_t first, uint32_t count) {
    positions.clear(), sequences.clear(), tokens.clear();
    add(sequence, first, count);
    return batch();
  }
  void add(uint32_t sequence, int32_t first, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i) {
      positions.push_back(first + static_cast<int32_t>(i));
      sequences.push_back(sequence);
      tokens.push_back(static_cast<int32_t>(
          (static_cast<uint32_t>(positions.back()) * 37 + sequence * 11) % 61));
    }
  }
  RowBatch batch() {
    RowBatch result;
    result.rows = static_cast<uint32_t>(positions.size());
    result.positions = positions;
    result.sequences = sequences;
    result.tokens = tokens;
    result.page_tables = tables;
    out_rows.resize(positions.size());
    std::iota(out_rows.begin(), out_rows.end(), 0u);
    result.out_rows = out_rows;
    return result;
  }
};

TEST_F(Vulkan, AttentionAgreesAcrossPagesAndSplits) {
  struct Case {
    int64_t heads, size;
    DType cache;
  };
  for (const Case& c :
       {Case{3, 16, DType::kF32}, Case{2, 20, DType::kF16}, Case{1, 25, DType::kF32},
        Case{1, 25, DType::kF16}, Case{2, 64, DType::kF16}, Case{1, 200, DType::kF32}}) {
    const int64_t channels = c.heads * c.size;
    const std::string what = cat(c.heads, " heads of ", c.size, " ", dtype_name(c.cache));
    const Tensor qkv = input("x", DType::kF32, {kRows, 3 * channels});
    const Tensor y = attention(qkv, input("k", c.cache, {channels}),
                               input("v", c.cache, {channels}), static_cast<int>(c.heads), 0.25f);
    Bench bench(*device_, Steps::limits(300));
    bench.add(compile("a", {{"y", y}}, device_->fuse_rules()), c.cache);
    const auto width = static_cast<size_t>(3 * channels), out = static_cast<size_t>(channels);
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

// A small GPT-2 with every stage, weights from noise.
struct Tiny {
  std::unique_ptr<Model> model;
  DType dtype, cache = DType::kF32;
  explicit Tiny(DType weights, const char* activation = "gelu_new", int channels = 60)
      : dtype(weights) {
    model = make_model(
        cat(R"({"model_type": "gpt2", "n_layer": 2, "n_head": 3, "vocab_size": 61, "n_embd": )",
            channels, R"(, "n_positions": 320, "activation_function": ")", activation, "\"}"));
  }
  void fill(Bench& bench, const FuseRules& rules) const {
    const bool blocks = is_quantised(dtype);
    const auto of = [&](const std::string& name) {
      return blocks && model->weight(name).product == Product::kNone ? DType::kF16 : dtype;
    };
    bench.add(compile("embed", model->trace_embed(of), rules));
    for (int layer = 0; layer < 2; ++layer) {
      auto outputs = model->trace_block(layer, of, cache);
      Program program = compile(cat("block.", layer), outputs, rules);
      // The blocks' hidden states go to and fro between two buffers.
      for (Slot& slot : program.slots) {
        if (layer == 1 && slot.name == "hidden")
          slot.name = "swap";
        else if (layer == 1 && slot.name == "hidden_out")
          slot.name = "hidden";
        if (slot.name == "hidden_out") slot.name = "swap";
      }
      bench.add(program, cache);
    }
    bench.add(compile("head", model->trace_head(of), rules));
    uint32_t seed = 1;
    for (const Blob& blob : model->blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        std::vector<float> values(static_cast<size_t>(*element_count(decl.dims)));
        const bool gain = decl.name.find("ln_") != std::string::npos && decl.dims.size() == 1 &&
                          decl.name.find("weight") != std::string::npos;
        for (float& value : values) value = noise(seed++, 0.2f) + (gain ? 1.0f : 0.0f);
        bench.set(decl.name, values);
      }
    }
  }
};

std::vector<float> logits(Bench& bench, RowBatch batch) {
  std::vector<float> result(batch.out_rows.size() * 61);
  batch.out = bench.buffer("logits");
  batch.out_bytes = std::as_writable_bytes(std::span(result));
  bench.run(batch);
  return result;
}

// The model's logits are the reference's within `bound`, and a row's do not depend on its company.
void expect_invariant_rows(Device& device, const Tiny& tiny, const Limits& limits, Phase phase,
                           double bound) {
  Bench bench(device, limits);
  tiny.fill(bench, device.fuse_rules());
  bench.load();
  Steps steps;
  const auto run = [&](RowBatch batch) {
    batch.phase = phase;
    return logits(bench, batch);
  };
  const std::vector<float> all = run(steps.batch(0, 0, 150));
  bench.run_reference(steps.batch(0, 0, 150));
  expect_close(all, bench.reference.values.at("logits"), "logits", bound, bound);
  // In slices of every kind, over what the last run left; then cut back and with a neighbour.
  for (const uint32_t slice : {1u, 2u, 4u, 8u, 9u, 33u}) {
    std::vector<float> got;
    for (uint32_t first = 0; first < 150; first += slice) {
      const auto part =
          run(steps.batch(0, static_cast<int32_t>(first), std::min(slice, 150 - first)));
      got.insert(got.end(), part.begin(), part.end());
    }
    expect_equal_bits(got, all, cat("slices of ", slice));
  }
  const std::vector<float> again = run(steps.batch(0, 131, 3));
  expect_equal_bits(again, {all.begin() + 131 * 61, all.begin() + 134 * 61}, "cut back");
  steps.batch(1, 0, 5);
  steps.add(0, 134, 6);
  const std::vector<float> both = run(steps.batch());
  expect_equal_bits({both.begin() + 5 * 61, both.end()},
                    {all.begin() + 134 * 61, all.begin() + 140 * 61}, "beside another");
  // Only some rows are wanted.
  RowBatch batch = steps.batch(0, 140, 10);
  const std::vector<uint32_t> wanted = {3, 9};
  batch.out_rows = wanted;
  const std::vector<float> some = run(batch);
  expect_equal_bits({some.begin(), some.begin() + 61},
                    {all.begin() + 143 * 61, all.begin() + 144 * 61}, "an output row");
  batch.out_rows = {};
  run(batch);
}

TEST_F(Vulkan, AModelAgreesAndRowsAreInvariant) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ4_0}) {
    expect_invariant_rows(*device_, Tiny(dtype), Steps::limits(160), Phase::kPrompt, 2e-5);
  }
}

// Where the device has matrix units; x, q and attention's weights are halves then, 2^-11 relative
// each.
TEST_F(Vulkan, MatrixUnitsAgreeAndRowsAreInvariant) {
  Tiny tiny(DType::kF16, "gelu_new", 96);
  tiny.cache = DType::kF16;
  Limits limits = Steps::limits(160);
  limits.matrix = true;
  for (const bool wide : {false, true}) {
    limits.wide = wide;
    for (const Phase phase : {Phase::kPrompt, Phase::kGenerate}) {
      SCOPED_TRACE(cat(wide ? "wide, " : "", phase == Phase::kPrompt ? "prompt" : "generated"));
      expect_invariant_rows(*device_, tiny, limits, phase, 4e-3);
    }
  }
}

TEST_F(Vulkan, OptionalPathsAndSmallBindingsGiveTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const Tiny tiny(dtype, "gelu");
    Steps steps;
    const auto run = [&](Device& device) {
      Bench bench(device, Steps::limits(160));
      tiny.fill(bench, device.fuse_rules());
      bench.load();
      std::vector<float> result = logits(bench, steps.batch(0, 0, 150));
      for (const uint32_t count : {1u, 4u, 5u}) {
        const auto more = logits(bench, steps.batch(0, 145, count));
        result.insert(result.end(), more.begin(), more.end());
      }
      return result;
    };
    const std::vector<float> want = run(*device_);
    expect_equal_bits(run(*device_with("SPLIT_VULKAN_DISABLE", "shuffle")), want, "no shuffles");
    expect_equal_bits(run(*device_with("SPLIT_VULKAN_DISABLE", "host_visible")), want, "staging");
    // Tables, matrices, caches and rows in pieces: 64 rows of qkv have 46,080 bytes.
    expect_equal_bits(run(*device_with("SPLIT_VULKAN_MAX_RANGE", "62000")), want, "62000 bytes");
  }
}

TEST_F(Vulkan, RefusesWhatDoesNotFit) {
  const Tiny tiny(DType::kF32);
  Bench bench(*device_, Steps::limits(16));
  tiny.fill(bench, device_->fuse_rules());
  bench.load();
  Steps steps;
  EXPECT_THROW(bench.run(steps.batch(0, 0, 17)), Error);
  EXPECT_THROW(bench.run(steps.batch(0, 319, 2)), Error);
  EXPECT_THROW(bench.run(steps.batch(2, 0, 1)), Error);
  RowBatch batch = steps.batch(0, 0, 1);
  const std::vector<int32_t> token = {61};
  batch.tokens = token;
  EXPECT_THROW(bench.run(batch), Error);
  EXPECT_THROW(device_->alloc(size_t{1} << 50), Error);
}

// A device that takes 20 ms for what it was thought to do in 5 is given less at a time.
TEST(VulkanPace, LearnsWhatADeviceTakes) {
  vulkan::Pace pace;
  const vulkan::Cost decode{50'000'000, 0}, prompt{0, 1'000'000'000};
  const double first = pace.estimate_ms(decode);
  EXPECT_GT(first, 0);
  pace.learn(decode, 200);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1);
  EXPECT_NEAR(pace.estimate_ms({25'000'000, 0}), 100, 1);
  const double before = pace.estimate_ms(prompt);
  pace.learn(prompt, before / 1000);
  EXPECT_NEAR(pace.estimate_ms(prompt), before / 4, 1e-3 * before) << "faster bit by bit";
  pace.learn(prompt, 30);
  pace.learn(prompt, 30);
  pace.learn(prompt, 30);
  EXPECT_NEAR(pace.estimate_ms(prompt), 30, 1);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1) << "each has its own rate";
  pace.learn({1000, 0}, 5);
  EXPECT_NEAR(pace.estimate_ms(decode), 200, 1) << "too small to tell";
}

TEST(VulkanQueue, CutsALongStepIntoSubmissions) {
  using namespace vulkan;
  std::unique_ptr<Instance> instance;
  try {
    instance = std::make_unique<Instance>();
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  if (instance->devices().empty()) GTEST_SKIP() << "no Vulkan device";
  Context context(std::move(instance), 0);
  Queue queue(context);
  std::vector<Segment> step;
  for (int i = 0; i < 6; ++i) {
    step.push_back({context.command_buffer(), {20'000'000, 0}});  // 20 ms at the first pace
    VkCommandBufferBeginInfo begin{};
    begin.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
    check(vkBeginCommandBuffer(step.back().commands, &begin), "vkBeginCommandBuffer");
    check(vkEndCommandBuffer(step.back().commands), "vkEndCommandBuffer");
  }
  queue.run(step);
  EXPECT_EQ(queue.submissions(), 3u) << "two of 20 ms each";
  for (int i = 0; i < 8; ++i) queue.run(step);  // which takes no time in truth
  const uint64_t before = queue.submissions();
  queue.measure(true);
  queue.run(step);
  EXPECT_EQ(queue.submissions(), before + 1);
  if (context.capabilities().timestamp_bits > 0) {
    ASSERT_TRUE(queue.device_ms().has_value());
    EXPECT_LT(*queue.device_ms(), 1000);
  }
}

}  // namespace
}  // namespace split
