// Models of the registry: what their settings mean, and names of weights.
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "models/config_reader.h"
#include "models/model.h"
#include "run/room.h"

namespace split {
namespace {

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

constexpr const char* kGpt2 = R"({"model_type": "gpt2", "n_layer": 2, "n_embd": 12, "n_head": 3,
    "vocab_size": 11, "n_positions": 9000, "eos_token_id": [3, 5, 3]})";

TEST(Models, ServesWhatItWasMadeForUpToThirtyTwoThousandPositionsOrAsManyAsAreAskedFor) {
  EXPECT_EQ(make_model(kGpt2)->config().context, 9000);
  EXPECT_EQ(served_context(131072, {}), 32768);
  EXPECT_EQ(served_context(131072, 65536), 65536);
  const auto model = make_model(kGpt2, 8192);
  EXPECT_EQ(model->config().context, 8192);
  EXPECT_EQ(model->config().max_positions, 9000);
  EXPECT_EQ(model->weight("wpe.weight").dims, (Dims{9000, 12}));
  EXPECT_EQ(served_context(1024, {}), 1024);
  EXPECT_EQ(message_of([] { make_model(kGpt2, 9001); }),
            "[model] context: expected 1 to 9000 positions, which it was made for, got 9001");
  EXPECT_EQ(message_of([] { served_context(1024, 0); }),
            "[model] context: expected 1 to 1024 positions, which it was made for, got 0");
}

TEST(Models, TellsShapesOfItsBlocks) {
  const auto model = make_model(kGpt2);
  const ModelConfig& config = model->config();
  EXPECT_EQ(config.kind, ModelKind::kDecoder);
  EXPECT_EQ(config.kv_heads, 3);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.inner, 48);
  EXPECT_EQ(config.stops, (std::vector<int>{3, 5}));
  EXPECT_EQ(config.end_of_text, 3);
  EXPECT_EQ(model->kv_width(1), 12);
  EXPECT_EQ(model->window(1), 0);
  EXPECT_EQ(model->constant("wte.weight"), nullptr);
}

// The README tells it: an edge that finishes GPT-2 XL behind its last two blocks downloads so much,
// and the head.
TEST(Models, TheLastTwoBlocksOfXlHave65Megabytes) {
  const auto model = make_model(R"({"model_type": "gpt2", "n_layer": 48, "n_embd": 1600,
      "n_head": 25, "vocab_size": 50257, "n_positions": 1024})");
  uint64_t bytes = 0;
  for (const char* name : {"h.46", "h.47"}) {
    for (const WeightDecl& weight : model->blob(name).weights) {
      const DType dtype = weight.product == Product::kNone ? DType::kF32 : DType::kQ8_0;
      bytes += tensor_bytes(dtype, stored_dims(weight, dtype)).value();
    }
  }
  EXPECT_EQ(bytes / 1'000'000, 65u) << bytes;
}

// Said by their names before any file of weights is read: those have tensors that say less.
TEST(Models, RefusesOtherModelsByName) {
  for (const char* type : {"deberta-v2", "electra", "gpt_neox", "qwen3_moe", ""}) {
    EXPECT_EQ(
        message_of([&] { tensor_names(cat(R"({"model_type": ")", type, "\"}")); }),
        cat("[config.json] model_type: expected \"gpt2\", \"bert\", \"roberta\", \"xlm-roberta\", "
            "\"mpnet\", \"llama\", \"mistral\", "
            "\"qwen2\", \"qwen3\", \"gemma2\", \"gemma3_text\", \"modernbert\", \"qwen3_5\", "
            "\"qwen3_5_text\", \"gemma4\" or \"gemma4_text\", got '",
            type, "'"));
  }
  for (const char* type : {"gpt2", "bert", "llama"}) {
    EXPECT_EQ(
        message_of([&] {
          tensor_names(cat(R"({"quantization_config": {"bits": 4}, "model_type": ")", type, "\"}"));
        }),
        "[config.json] quantization_config: expected none, got {\"bits\":4}: weights packed "
        "by other tools are not supported");
  }
}

TEST(Models, LowersTheContextOfItsTables) {
  const auto model = make_model(R"({"model_type": "llama", "num_hidden_layers": 1,
      "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1, "vocab_size": 4,
      "max_position_embeddings": 64})");
  const Constant& cos = *model->constant("rope.cos");
  const std::vector<float> before = cos.values;
  EXPECT_EQ(cos.dims, (Dims{64, 4}));
  model->lower_context(3);
  EXPECT_EQ(model->config().context, 3);
  EXPECT_EQ(cos.dims, (Dims{3, 4}));
  EXPECT_EQ(cos.values, std::vector<float>(before.begin(), before.begin() + 12));
}

std::unique_ptr<Model> llama_of(const std::string& more, std::optional<int> context = {}) {
  return make_model(cat(R"({"num_hidden_layers": 1, "hidden_size": 12, "intermediate_size": 8,
      "num_attention_heads": 3, "num_key_value_heads": 1, "vocab_size": 4,
      "max_position_embeddings": 256, )",
                        more, "}"),
                    context);
}

// Llama 3.2's factor is 32 and not 8, its short texts turn by it too, and the tables are as long as
// the texts that are served, not as those that it was trained on first (T11).
TEST(Models, TurnLlama3ByItsOwnFactorAtAnyLength) {
  for (const auto& [factor, context] :
       {std::pair{8.0, 256}, std::pair{32.0, 256}, std::pair{32.0, 12}}) {
    const auto model = llama_of(
        cat(R"("model_type": "llama", "rope_theta": 500000, "rope_scaling": {"rope_type": "llama3",
            "factor": )",
            factor, R"(, "low_freq_factor": 1, "high_freq_factor": 4,
            "original_max_position_embeddings": 16})"),
        context);
    const Constant& sin = *model->constant("rope.sin");
    ASSERT_EQ(sin.dims, (Dims{context, 2}));
    const double slowest = 1 / (std::sqrt(500000.0) * factor);
    for (const size_t position : {1u, 11u, 16u, 255u}) {
      if (position >= static_cast<size_t>(context)) break;
      const double angle = static_cast<double>(position) * slowest;
      EXPECT_NEAR(sin.values[2 * position + 1], std::sin(angle), 1e-6) << factor << " " << position;
    }
  }
}

// The size of a head is named, or that of the model type, or C / H: in this order (T12).
TEST(Models, TakeTheHeadSizeThatIsNamed) {
  const auto size = [](const std::string& more) {
    const auto model = llama_of(more);
    EXPECT_EQ(model->kv_width(0), model->config().head_dim);
    return model->config().head_dim;
  };
  EXPECT_EQ(size(R"("model_type": "llama")"), 4);
  EXPECT_EQ(size(R"("model_type": "llama", "head_dim": null)"), 4);
  EXPECT_EQ(size(R"("model_type": "llama", "head_dim": 6)"), 6);
  EXPECT_EQ(size(R"("model_type": "qwen3")"), 128);
  EXPECT_EQ(size(R"("model_type": "qwen3", "head_dim": 6)"), 6);
  EXPECT_EQ(llama_of(R"("model_type": "llama", "head_dim": 6)")
                ->weight("layers.0.self_attn.q_proj.weight")
                .dims,
            (Dims{18, 12}));
}

TEST(Models, SaysWhatItNeedsWhereItDoesNotFit) {
  const auto cpu = make_cpu_device(1);
  expect_room(*cpu, "small", 1 << 20, 1 << 20);
  EXPECT_EQ(message_of([&] {
              expect_room(*cpu, "huge", uint64_t{1} << 50, 1000);
            }).starts_with("[model] huge: needs 1125899906843624 bytes, "),
            true);
}

// A machine of so many bytes.
struct Machine {
  explicit Machine(uint64_t bytes) {
    std::filesystem::create_directories(dir / "proc");
    std::ofstream(dir / "proc/meminfo") << "MemTotal: " << bytes / 1024 << " kB\n";
  }
  ~Machine() { std::filesystem::remove_all(dir); }
  SystemFiles files() const { return {dir / "proc", dir / "cgroup"}; }
  const std::filesystem::path dir =
      std::filesystem::temp_directory_path() / cat("split-machine-", ::getpid());
};

TEST(Models, AContextThatNobodyAskedForIsWhatThereIsRoomFor) {
  const Machine large(uint64_t{1} << 40);
  const auto fitted = [](const TextRoom& room, const SystemFiles& files) {
    const auto model = make_model(kGpt2);
    const uint64_t before = kv_bytes_for(*model, {}, Profile::kF32, 1);
    const std::string line = fit_context(*model, Profile::kF32, {}, room, files);
    const int context = model->config().context;
    EXPECT_EQ(line.empty(), context == 9000) << line;
    const std::string begins =
        cat("context ", context, " of the 9000 that the model was made for: ");
    EXPECT_TRUE(line.empty() || line.starts_with(begins)) << line;
    EXPECT_LE(kv_bytes_for(*model, {}, Profile::kF32, 1), before);
    return std::pair(context, line.substr(std::min(line.size(), begins.size())));
  };
  constexpr uint64_t kPage = 16 * 2 * 2 * 12 * sizeof(float);  // two blocks of twelve channels
  EXPECT_EQ(fitted({.budget = 1 << 30}, large.files()).first, 9000);
  const auto [budget, of_budget] = fitted({.budget = 100 * kPage + 1}, large.files());
  EXPECT_EQ(budget, 1600);
  EXPECT_EQ(of_budget, "--kv-budget, 307 kB, bounds it (192 B a position)");
  // Too little for any text of use: whoever loads the model refuses it as ever, or takes it anyway.
  EXPECT_EQ(fitted({.budget = 1}, large.files()).first, 4096);
  std::filesystem::remove_all(large.dir);
  // An eighth is left aside, and what the weights take.
  const Machine small(1 << 20);
  const uint64_t weights = (1 << 20) / 8 * 7 - 50 * kPage;
  const auto [memory, of_memory] = fitted({.budget = 1 << 30, .weights = weights}, small.files());
  EXPECT_EQ(memory, 800);
  EXPECT_EQ(of_memory, "the memory, 1.0 MB, bounds it (192 B a position)");
  EXPECT_EQ(fitted({.budget = 1 << 30, .weights = weights, .is_gpu = true}, small.files()).first,
            9000);
}

TEST(Models, NamesOfFilesLoseAPrefixAndTakeTheModelsEnds) {
  static constexpr std::string_view kPrefixes[] = {"bert.", "model."};
  static constexpr TensorNames::Alias kAliases[] = {{".gamma", ".weight"}, {".beta", ".bias"}};
  constexpr TensorNames kNames{.prefixes = kPrefixes, .aliases = kAliases};
  EXPECT_EQ(kNames.name_of("bert.pooler.LayerNorm.gamma"), "pooler.LayerNorm.weight");
  EXPECT_EQ(kNames.name_of("model.bert.beta"), "bert.bias");
  EXPECT_EQ(kNames.name_of("norm.weight"), "norm.weight");
}

// Buffers that older files keep beside the weights are none (T19).
TEST(Models, NamesOfLlamaFilesHaveAPrefixOrNone) {
  const TensorNames names = tensor_names(R"({"model_type": "llama"})");
  EXPECT_EQ(names.name_of("model.layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
  EXPECT_EQ(names.name_of("layers.0.mlp.up_proj.weight"), "layers.0.mlp.up_proj.weight");
  EXPECT_EQ(names.name_of("lm_head.weight"), "lm_head.weight");
  EXPECT_TRUE(names.ignored("layers.0.self_attn.rotary_emb.inv_freq"));
  EXPECT_FALSE(names.ignored("layers.0.self_attn.q_proj.weight"));
}

}  // namespace
}  // namespace split
