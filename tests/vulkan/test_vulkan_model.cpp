// A small GPT-2, and a small Llama, on the Vulkan device: rows in every company, optional paths,
// bindings in pieces, layouts of products.
#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>

#include "base/file.h"
#include "device/drawn.h"
#include "device/vulkan/program/dispatches.h"
#include "device/vulkan/tuning/layouts.h"
#include "models/model.h"
#include "support/temporary_folder.h"
#include "vulkan_bench.h"

namespace split::test {
namespace {

// A small model of two blocks with every stage, weights from noise: a GPT-2, or of a config.
struct Tiny {
  std::unique_ptr<Model> model;
  DType dtype, cache = DType::kF32;
  explicit Tiny(DType weights, const char* activation = "gelu_new", int channels = 60)
      : dtype(weights) {
    model = make_model(
        cat(R"({"model_type": "gpt2", "n_layer": 2, "n_head": 3, "vocab_size": 61, "n_embd": )",
            channels, R"(, "n_positions": 320, "activation_function": ")", activation, "\"}"));
  }
  Tiny(DType weights, const std::string& config) : model(make_model(config)), dtype(weights) {}
  void fill(Bench& bench, const FuseRules& rules) const {
    const bool blocks = is_quantised(dtype);
    const auto of = [&](const std::string& name) {
      return blocks && model->weight(name).product == Product::kNone ? DType::kF16 : dtype;
    };
    bench.add(compile("embed", {model->stage("embed").trace({of})}, rules));
    for (int layer = 0; layer < 2; ++layer) {
      const Stage& stage = model->stage(cat("block.", layer));
      Program program = compile(stage.name, {stage.trace({of, cache})}, rules);
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
    bench.add(compile("head", {model->stage("head").trace({of})}, rules));
    uint32_t seed = 1;
    for (const Blob& blob : model->blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        std::vector<float> values(static_cast<size_t>(*element_count(decl.dims)));
        const bool gain = decl.dims.size() == 1 && decl.name.ends_with("weight");
        for (float& value : values) value = noise(seed++, 0.2f) + (gain ? 1.0f : 0.0f);
        bench.set(decl.name, values);
      }
    }
    for (const Constant& constant : model->constants()) bench.set(constant.name, constant.values);
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
  for (const uint32_t slice : {1u, 2u, 4u, 8u, 9u, 33u, 65u}) {
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
    // The tests below have floats; SPLIT_LONG has all here too.
    if (!is_quantised(dtype) && std::getenv("SPLIT_LONG") == nullptr) continue;
    SCOPED_TRACE(dtype_name(dtype));
    expect_invariant_rows(*device_, Tiny(dtype), Steps::limits(160), Phase::kPrompt, 2e-5);
  }
}

// Where the device has matrix units; x, q and attention's weights are halves then, 2^-11 relative
// each, and so are weights that lie in blocks.
TEST_F(Vulkan, MatrixUnitsAgreeAndRowsAreInvariant) {
  if (!has_matrix_units()) GTEST_SKIP() << "no matrix units";
  for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
    Tiny tiny(dtype, "gelu_new", 96);
    tiny.cache = DType::kF16;
    Limits limits = Steps::limits(160);
    limits.matrix = true;
    for (const bool wide : {false, true}) {
      if (!wide && is_quantised(dtype)) continue;  // what a wide one's prompts do
      limits.wide = wide;
      for (const Phase phase : {Phase::kPrompt, Phase::kGenerate}) {
        SCOPED_TRACE(cat(dtype_name(dtype), wide ? ", wide" : "",
                         phase == Phase::kPrompt ? ", prompt" : ", generated"));
        expect_invariant_rows(*device_, tiny, limits, phase, is_quantised(dtype) ? 8e-3 : 4e-3);
      }
    }
  }
}

// Logits of a prompt and of steps of 1 to 8 rows.
std::vector<float> logits_of_all(Device& device, const Tiny& tiny) {
  Steps steps;
  Bench bench(device, Steps::limits(160));
  tiny.fill(bench, device.fuse_rules());
  bench.load();
  std::vector<float> result = logits(bench, steps.batch(0, 0, 150));
  for (const uint32_t count : {1u, 2u, 4u, 5u}) {
    const auto more = logits(bench, steps.batch(0, 145, count));
    result.insert(result.end(), more.begin(), more.end());
  }
  return result;
}

TEST_F(Vulkan, OptionalPathsAndSmallBindingsGiveTheSameBits) {
  // The range has tables, matrices, caches and rows in pieces: 64 rows of qkv have 46,080 bytes.
  constexpr std::pair<const char*, const char*> kPaths[] = {
      {"SPLIT_VULKAN_DISABLE", "shuffle"},
      {"SPLIT_VULKAN_MAX_RANGE", "62000"},
      {"SPLIT_VULKAN_ADDRESSES", "1"},
      {"SPLIT_VULKAN_DISABLE", "addresses"},
      {"SPLIT_VULKAN_DISABLE", "host_visible"}};
  Drawn drawn(*device_, 3);
  for (const DType dtype : {DType::kF32, DType::kQ8_0}) {
    const Tiny tiny(dtype, "gelu");
    const std::vector<float> want = logits_of_all(*device_, tiny);
    for (const auto& [variable, value] : kPaths) {
      if (!drawn.next()) continue;
      expect_equal_bits(logits_of_all(*device_with(variable, value), tiny), want, value);
    }
  }
}

// A product does the work of steps beside it, which those do themselves where it must not, and
// where its matrix is in pieces: a norm, a rotation, keys and values into their pages, the product
// that its epilogue reads, and the merge of an attention's splits.
TEST_F(Vulkan, WorkDoneForNeighboursGivesTheSameBits) {
  const bool all = std::getenv("SPLIT_LONG") != nullptr;  // of each kind of blocks, and in pieces
  // With biases; by blocks of sizes whose queries, keys and values are made in one.
  std::vector<std::pair<const char*, DType>> models = {{"qwen2", DType::kF32},
                                                       {"qwen2", DType::kQ4_0}};
  if (all) {
    models.insert(models.end(), {{"llama", DType::kF32},
                                 {"llama", DType::kQ8_0},
                                 {"llama", DType::kQ4_K},
                                 {"gemma2", DType::kQ6_K}});
  }
  for (const auto& [type, dtype] : models) {
    SCOPED_TRACE(cat(type, " ", dtype_name(dtype)));
    // Heads whose channels are no fours, or rows of whole blocks.
    const char* const heads =
        dtype == DType::kF32
            ? R"("num_attention_heads": 6, "num_key_value_heads": 3, "head_dim": 42)"
            : R"("num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 32)";
    const Tiny tiny(dtype, cat(R"({"model_type": ")", type, R"(", "num_hidden_layers": 2,
        "hidden_size": 256, "intermediate_size": 512, "vocab_size": 61,
        "max_position_embeddings": 320, "tie_word_embeddings": false, )",
                               heads, "}"));
    const auto run = [&](Device& device) { return logits_of_all(device, tiny); };
    const std::vector<float> want = run(*device_);
    expect_equal_bits(run(*device_with("SPLIT_VULKAN_DISABLE", "neighbours")), want, "apart");
    if (dtype != DType::kF32 || !all) continue;
    expect_equal_bits(run(*device_with("SPLIT_VULKAN_MAX_RANGE", "220000")), want, "in pieces");
  }
}

// y [rows, 96] = x [rows, 320] w + b, for 1, 2, 4 and 8 rows.
std::vector<float> products(Device& device, DType dtype) {
  constexpr uint32_t kInner = 320, kColumns = 96, kMostRows = 8;
  const bool blocks = is_quantised(dtype);
  const Tensor w = blocks ? transpose(weight("w", dtype, {kColumns, kInner}))
                          : weight("w", dtype, {kInner, kColumns});
  const Tensor y =
      matmul(input("x", DType::kF32, {kRows, kInner}), w) + weight("b", DType::kF32, {kColumns});
  std::vector<float> x, matrix, bias;
  for (uint32_t i = 0; i < kMostRows * kInner; ++i) x.push_back(noise(i));
  for (uint32_t i = 0; i < kInner * kColumns; ++i) matrix.push_back(noise(i + 1, 0.1f));
  for (uint32_t i = 0; i < kColumns; ++i) bias.push_back(noise(i + 2));
  Limits limits;
  limits.rows = kMostRows;
  Bench bench(device, limits);
  bench.set("x", x);
  bench.set("w", matrix);
  bench.set("b", bias);
  bench.add(compile("product", {{"y", y}}, device.fuse_rules()));
  bench.load();
  std::vector<float> all;
  for (const uint32_t rows : {1u, 2u, 4u, kMostRows}) {
    bench.write("x", x);
    bench.run(rows_only(rows));
    const auto part = bench.read("y", rows * kColumns);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST_F(Vulkan, EveryLayoutOfAProductGivesTheSameBits) {
  const auto by_rule = device_with("SPLIT_VULKAN_DISABLE", "tuner");
  Drawn drawn(*device_, 2);
  const Tiny tiny(DType::kF16);  // with products that rows are normed and splits are joined for
  const std::vector<float> model = logits_of_all(*by_rule, tiny);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const std::vector<float> want = products(*by_rule, dtype);
    for (const char* layout : {"0", "1", "2", "3", "4"}) {
      if (!drawn.next()) continue;
      const auto device = device_with("SPLIT_VULKAN_TUNE", layout);
      expect_equal_bits(products(*device, dtype), want, layout);
      if (dtype == DType::kF16 && *layout % 2 == 1) {
        expect_equal_bits(logits_of_all(*device, tiny), model, layout);
      }
    }
  }
}

// With a cache folder of its own.
class TunedVulkan : public Vulkan {
 protected:
  void SetUp() override {
    if (const char* const value = getenv("XDG_CACHE_HOME")) before_ = value;
    setenv("XDG_CACHE_HOME", folder_.path.c_str(), 1);
    Vulkan::SetUp();
  }
  void TearDown() override {
    Vulkan::TearDown();
    if (before_) {
      setenv("XDG_CACHE_HOME", before_->c_str(), 1);
    } else {
      unsetenv("XDG_CACHE_HOME");
    }
  }
  TemporaryFolder folder_;
  std::optional<std::string> before_;
};

TEST_F(TunedVulkan, KeepsWhatWasFound) {
  const auto by_rule = device_with("SPLIT_VULKAN_DISABLE", "tuner");
  const std::vector<float> want = products(*by_rule, DType::kF32);
  const auto start = [&](const std::string& what) {
    const auto device = device_with("SPLIT_VULKAN_TUNE", "measure");
    expect_equal_bits(products(*device, DType::kF32), want, what);
  };
  start("measured");
  const auto folder = folder_.path / "splitcompute" / "tuning";
  ASSERT_TRUE(std::filesystem::exists(folder));
  const auto path = std::filesystem::directory_iterator(folder)->path();
  const std::string kept = read_file(path, 1 << 20);
  EXPECT_EQ(std::count(kept.begin(), kept.end(), '\n'), 1) << kept;
  const auto rewritten = [&](const std::string& what, const std::string& text) {
    write_file(path, as_bytes_of(text));
    const auto written = std::filesystem::last_write_time(path);
    start(what);
    return std::filesystem::last_write_time(path) != written;
  };
  EXPECT_FALSE(rewritten("kept", kept));
  EXPECT_TRUE(rewritten("nonsense", "320 96 0 one"));
  // The fifth number of a line is a workgroup's lanes.
  std::string other, word;
  std::istringstream words(kept);
  for (int i = 0; words >> word; ++i) other += (i == 4 ? "3" : word) + " ";
  EXPECT_TRUE(rewritten("no layout of ours", other));
  EXPECT_NE(read_file(path, 1 << 20), other);
}

TEST_F(TunedVulkan, LeavesOpenWhatIsOnlyPreviewed) {
  vulkan::Capabilities device;
  device.timestamp_bits = 64;
  vulkan::Tuner tuner(device);
  const vulkan::MatmulQuestion question{1024, 1024, 0, 0};
  const std::vector<vulkan::MatmulShape> layouts = {{128, 16, 1, 1}, {64, 16, 1, 1}};
  {
    const vulkan::Tuner::Preview preview(tuner);
    EXPECT_EQ(tuner.choose(question, layouts), layouts[0]);
  }
  tuner.settle();
  EXPECT_TRUE(tuner.is_open(question));
  tuner.choose(question, layouts);
  tuner.settle();
  EXPECT_FALSE(tuner.is_open(question));
}

// Where shuffles reach few lanes, what is exchanged fits beside a row that is made first.
TEST(VulkanLayouts, ExchangeNoMoreThanTheyMay) {
  vulkan::Capabilities device;
  device.subgroup = 8;
  device.most_lanes = 1024;
  for (const bool sums : {false, true}) {
    for (const int64_t columns : {1600, 6400, 50257}) {
      const auto pairs = static_cast<size_t>(sums ? columns : 0);
      const vulkan::MatmulUse use{1, false, sums, !sums, pairs, DType::kF16};
      const auto layouts = vulkan::matmul_layouts(device, 1600, columns, use);
      EXPECT_GT(layouts.size(), 1u);
      for (const vulkan::MatmulShape& layout : layouts) {
        const size_t floats = layout.workgroup * layout.columns_per_lane;
        EXPECT_TRUE(pairs == 0 || layout.columns_per_lane % 2 == 0);
        EXPECT_LE((floats + vulkan::row_lanes(device)) * sizeof(float), vulkan::exchange_bytes())
            << columns << ": " << layout.workgroup << " lanes";
      }
    }
  }
}

// Not by what a device that has none would do instead.
TEST_F(Vulkan, GivesKernelsAddressesWhereAskedTo) {
  setenv("SPLIT_VULKAN_ADDRESSES", "1", 1);
  const vulkan::Instance instance;
  for (const VkPhysicalDevice device : instance.devices()) {
    const vulkan::Capabilities has = vulkan::inspect(instance.get(), device);
    EXPECT_TRUE(has.addresses || !has.software) << has.name;
  }
  unsetenv("SPLIT_VULKAN_ADDRESSES");
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

}  // namespace
}  // namespace split::test
