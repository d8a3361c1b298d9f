// The profile int8 on Vulkan: exact1's bits, which are those of the CPU's kernels
// (device/test_exact.cpp compares these with the specification).
#include <cstdlib>

#include "run/bits.h"
#include "run/self_test.h"
#include "support/exact/inputs.h"
#include "support/golden_model.h"
#include "vulkan_bench.h"

namespace split::test {
namespace {

bool is_long() { return std::getenv("SPLIT_LONG") != nullptr; }

class VulkanExact : public Vulkan {
 protected:
  std::unique_ptr<Device> cpu_ = make_cpu_device(2);
};

TEST_F(VulkanExact, ABlockPassesTheSelfTest) { EXPECT_STREQ(exact_difference(*device_), nullptr); }

TEST_F(VulkanExact, ProductsHaveTheBitsOfTheCpu) {
  Numbers numbers(11);
  constexpr DType kTypes[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_K, DType::kQ6_K};
  for (int i = 0; i < (is_long() ? 200 : 20); ++i) {
    const DType dtype = kTypes[i % 4];
    const size_t unit = is_k_quant(dtype) ? kSuperBlock : kBlock;
    const size_t inner = unit * (1 + numbers.next() % (i % 8 == 7 ? 16384 / unit : 2048 / unit));
    const uint32_t rows = 1 + numbers.next() % (i % 3 == 0 ? 33 : 8);
    const auto width = static_cast<int64_t>(1 + numbers.next() % 90);
    const auto x = activations(rows * inner, numbers.next(), kKinds[i % std::size(kKinds)]);
    const auto columns = static_cast<int64_t>(inner);
    const Tensor y = matmul(input("x", DType::kF32, {kRows, columns}),
                            transpose(weight("w", dtype, {width, columns})));
    std::vector<std::vector<float>> results;
    for (Device* device : {cpu_.get(), device_.get()}) {
      Limits limits;
      limits.rows = rows;
      limits.int8 = Int8Rows::kAll;
      Bench bench(*device, limits);
      std::vector<float> ws(inner * static_cast<size_t>(width));
      for (uint32_t at = 0; at < ws.size(); ++at) ws[at] = noise(at + 31, 0.05f);
      bench.set("x", x);
      bench.set("w", ws);
      bench.add(compile("m", {{"y", y}}, device->fuse_rules()));
      bench.load();
      for (const uint32_t slice : {rows, 1u, 3u}) {
        results.push_back(in_slices(bench, x, inner, static_cast<size_t>(width), rows, slice));
      }
    }
    for (const auto& result : results) {
      expect_equal_bits(result, results[0],
                        cat(inner, " x ", width, " ", dtype_name(dtype), ", ", rows, " rows"));
    }
  }
}

// A row whose block reaches 2^60 or is no number is nowhere finite behind a product or an
// attention, whatever NaN the driver has. The other rows are what they are.
TEST_F(VulkanExact, WhatOverflowsSpoilsAllThatIsMadeOfItsRow) {
  constexpr int64_t kWidth = 64;
  constexpr uint32_t kAll = 12;
  const Tensor x = input("x", DType::kF32, {kRows, 3 * kWidth});
  const auto cache = [](const char* name) { return input(name, DType::kBF16, {kWidth}); };
  const Tensor ys[] = {
      matmul(x, transpose(weight("w", DType::kQ8_0, {kWidth, 3 * kWidth}))),
      attention(columns(x, 0, kWidth), columns(x, kWidth, kWidth), columns(x, 2 * kWidth, kWidth),
                cache("k"), cache("v"), {2, 2, 32, 0.125f})};
  for (const auto& [y, device] : {std::pair(0, cpu_.get()), std::pair(0, device_.get()),
                                  std::pair(1, cpu_.get()), std::pair(1, device_.get())}) {
    const bool attends = y == 1;
    Limits limits = Steps::limits(kAll);
    limits.int8 = Int8Rows::kAll;
    Bench bench(*device, limits);
    std::vector<float> ws(3 * kWidth * kWidth);
    for (uint32_t at = 0; at < ws.size(); ++at) ws[at] = noise(at, 0.05f);
    bench.set("x", {});
    bench.set("w", ws);
    bench.add(compile("o", {{"y", ys[y]}}, device->fuse_rules()), DType::kBF16);
    bench.load();
    for (const int bits : {0x5d800000, 0x7f800000, 0x7fc00000, 0x7fffffff, -1}) {
      if (attends && bits == 0x5d800000) continue;  // it rounds no block
      for (const uint32_t rows : {kAll, 1u, 4u}) {
        auto xs = activations(rows * 3 * kWidth, 1, Kind::kOrdinary);
        // Values of one row, all of them, since columns of an attention are by themselves.
        std::fill_n(xs.end() - kWidth, attends ? kWidth : 1, glsl::intBitsToFloat(bits));
        Steps steps;
        RowBatch batch = steps.batch(0, 0, rows);
        std::vector<float> got(rows * kWidth);
        batch.in = bench.buffer("x");
        batch.in_bytes = std::as_bytes(std::span(xs));
        batch.out = bench.buffer("y");
        batch.out_bytes = std::as_writable_bytes(std::span(got));
        bench.run(batch);
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_EQ(std::isfinite(got[i]), i < (rows - 1) * kWidth)
              << device->name() << (attends ? ", attention " : ", product ") << i << " of " << rows
              << " rows, " << bits;
        }
      }
    }
  }
}

// Windows, caps and biases, over splits of 128 keys that a row sees in part.
TEST_F(VulkanExact, AttentionHasTheBitsOfTheCpu) {
  struct Shape {
    int size, heads, kv_heads, window;
    float cap;
    bool biased;
  };
  constexpr Shape kShapes[] = {{32, 2, 1, 0, 0, false},   {64, 4, 2, 0, 0, false},
                               {128, 2, 2, 0, 0, false},  {64, 2, 1, 40, 0, false},
                               {96, 2, 1, 150, 0, false}, {256, 1, 1, 0, 30, false},
                               {64, 3, 3, 0, 0, true}};
  size_t kind = 0;
  for (const Shape& shape : kShapes) {
    const auto width = int64_t{shape.heads} * shape.size, kv = int64_t{shape.kv_heads} * shape.size;
    AttentionHeads heads{shape.heads, shape.kv_heads, shape.size, 0.125f};
    heads.window = shape.window;
    heads.cap = shape.cap;
    const Tensor x = input("x", DType::kF32, {kRows, width + 2 * kv});
    const Tensor y = attention(
        columns(x, 0, width), columns(x, width, kv), columns(x, width + kv, kv),
        input("k", DType::kBF16, {kv}), input("v", DType::kBF16, {kv}), heads,
        shape.biased ? weight("bias", DType::kF32, {kBiasBuckets, shape.heads}) : Tensor(0.0f));
    constexpr uint32_t kAll = 215;
    constexpr Kind kOfRows[] = {Kind::kOrdinary, Kind::kTiny, Kind::kDenormal, Kind::kOutliers};
    const auto xs = activations(kAll * static_cast<size_t>(width + 2 * kv), 5,
                                kOfRows[kind++ % std::size(kOfRows)]);
    std::vector<std::vector<float>> results;
    for (Device* device : {cpu_.get(), device_.get()}) {
      Bench bench(*device, Steps::limits(64));
      bench.set("x", {});
      std::vector<float> bias(static_cast<size_t>(kBiasBuckets * shape.heads));
      for (uint32_t i = 0; i < bias.size(); ++i) bias[i] = noise(i);
      bench.set("bias", bias);
      bench.add(compile("a", {{"y", y}}, device->fuse_rules()), DType::kBF16);
      bench.load();
      std::vector<float> all;
      const size_t in = static_cast<size_t>(width + 2 * kv), out = static_cast<size_t>(width);
      uint32_t past = 0;
      for (const uint32_t rows : {64u, 64u, 1u, 2u, 4u, 8u, 64u, 7u, 1u}) {
        Steps steps;
        RowBatch batch = steps.batch(0, static_cast<int32_t>(past), rows);
        std::vector<float> got(rows * out);
        batch.in = bench.buffer("x");
        batch.in_bytes = std::as_bytes(std::span(xs).subspan(past * in, rows * in));
        batch.out = bench.buffer("y");
        batch.out_bytes = std::as_writable_bytes(std::span(got));
        bench.run(batch);
        all.insert(all.end(), got.begin(), got.end());
        past += rows;
      }
      results.push_back(all);
    }
    expect_equal_bits(results[1], results[0],
                      cat("heads of ", shape.size, ", window ", shape.window));
  }
}

// Weights of noise for a model without a checkpoint.
class NoiseWeights {
 public:
  explicit NoiseWeights(const Model& model) {
    uint32_t seed = 1;
    for (const Blob& blob : model.blobs()) {
      for (const WeightDecl& decl : blob.weights) {
        std::vector<float>& values = values_[decl.name];
        values.resize(static_cast<size_t>(*element_count(decl.dims)));
        const bool norm = decl.dims.size() == 1 && decl.name.find("norm") != std::string::npos;
        for (float& value : values) value = noise(seed++, 0.3f) + (norm ? 1.0f : 0.0f);
        dims_[decl.name] = decl.dims;
      }
    }
  }
  WeightSource source() const {
    return [this](const std::string& name) {
      return TensorView{DType::kF32, dims_.at(name), std::as_bytes(std::span(values_.at(name)))};
    };
  }

 private:
  std::map<std::string, std::vector<float>> values_;
  std::map<std::string, Dims> dims_;
};

// Heads of whole blocks, whose caches are in bf16.
struct Int8Model {
  const char* type;
  const char* more;
};
constexpr Int8Model kInt8Models[] = {
    {"gpt2", R"("n_layer":2,"n_embd":96,"n_head":3,"n_positions":64)"},
    {"llama", R"("num_key_value_heads":1,"intermediate_size":300)"},
    {"qwen2", R"("num_key_value_heads":1,"intermediate_size":96)"},
    {"qwen3", R"("num_key_value_heads":1,"intermediate_size":96,"head_dim":32)"},
    {"gemma2", R"("num_key_value_heads":1,"intermediate_size":96,"head_dim":32,
        "sliding_window":8,"query_pre_attn_scalar":32)"},
    {"gemma3_text", R"("num_key_value_heads":1,"intermediate_size":96,"head_dim":64,
        "sliding_window":8,"query_pre_attn_scalar":64)"},
    {"bert", R"("intermediate_size":96,"type_vocab_size":2)"},
    {"mpnet", R"("intermediate_size":96)"},
    {"modernbert", R"("intermediate_size":96,"local_attention":8,"global_attn_every_n_layers":2)"}};

// Every point of a model, in a prompt, in pieces and token by token.
class VulkanInt8 : public Vulkan, public testing::WithParamInterface<size_t> {};
TEST_P(VulkanInt8, EveryPointHasTheBitsOfTheCpu) {
  const Int8Model& of = kInt8Models[GetParam()];
  const auto made = make_model(
      cat(R"({"num_hidden_layers":2,"hidden_size":64,"num_attention_heads":2,"vocab_size":64,)",
          R"("max_position_embeddings":64,"model_type":")", of.type, R"(",)", of.more, "}"));
  const Model& model = *made;
  const NoiseWeights weights(model);
  const bool encodes = model.config().encodes();
  const auto cpu = make_cpu_device(2);
  std::vector<int32_t> ids;
  for (int32_t i = 0; i < 21; ++i) ids.push_back((i * i + 3) % model.config().vocab);
  for (const char* formats : {"q8_0", "q4_0"}) {
    ShardOptions options = options_for(model);
    options.profile = Profile::kInt8;
    options.formats = StageFormats::parse(formats);
    Shard here(*device_, model, weights.source(), options);
    Shard there(*cpu, model, weights.source(), options);
    for (Shard* shard : {&here, &there}) {
      const auto format = [&](const Stage& stage) {
        return options.formats.of(stage.name).value_or(DType::kF32);
      };
      EXPECT_TRUE(bits_of(*shard, format).starts_with("exact1; kv bf16; ")) << of.type;
      EXPECT_TRUE(shard->same_bits_in_both_phases());
    }
    const int layers = model.config().layers;
    for (int point = 0; point <= layers + (encodes ? 0 : 1); ++point) {
      const Point to = point <= layers ? Point(point) : Point::head();
      std::vector<float> both[2];
      for (Shard* shard : {&there, &here}) {
        Line line(*shard);
        auto& all = both[shard == &here];
        for (const size_t rows :
             encodes ? std::vector<size_t>{21} : std::vector<size_t>{13, 1, 4, 1, 2}) {
          const size_t past = encodes ? 0 : shard->pages().length(line.id);
          const auto got = line.run({.range = {.to = to},
                                     .tokens = std::span(ids).subspan(past, rows),
                                     .wanted = Wanted::kAll});
          all.insert(all.end(), got.begin(), got.end());
        }
      }
      expect_equal_bits(both[1], both[0], cat(of.type, " in ", formats, ", point ", point));
      if (HasFatalFailure()) return;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Models, VulkanInt8, testing::Range(size_t{0}, std::size(kInt8Models)),
                         [](const auto& info) { return kInt8Models[info.param].type; });

}  // namespace
}  // namespace split::test
