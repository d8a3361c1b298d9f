// Models of the registry: what their settings mean, and names of weights.
#include <gtest/gtest.h>

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

TEST(Models, ServesFourThousandPositionsOrAsManyAsAreAskedFor) {
  EXPECT_EQ(make_model(kGpt2)->config().context, 4096);
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

TEST(Models, SaysWhatItNeedsWhereItDoesNotFit) {
  const auto cpu = make_cpu_device(1);
  expect_room(*cpu, "small", 1 << 20, 1 << 20);
  EXPECT_EQ(message_of([&] {
              expect_room(*cpu, "huge", uint64_t{1} << 50, 1000);
            }).starts_with("[model] huge: needs 1125899906843624 bytes, "),
            true);
}

TEST(Models, NamesOfFilesLoseAPrefixAndTakeTheModelsEnds) {
  static constexpr std::string_view kPrefixes[] = {"bert.", "model."};
  static constexpr TensorNames::Alias kAliases[] = {{".gamma", ".weight"}, {".beta", ".bias"}};
  constexpr TensorNames names{.prefixes = kPrefixes, .aliases = kAliases};
  EXPECT_EQ(names.name_of("bert.pooler.LayerNorm.gamma"), "pooler.LayerNorm.weight");
  EXPECT_EQ(names.name_of("model.bert.beta"), "bert.bias");
  EXPECT_EQ(names.name_of("norm.weight"), "norm.weight");
}

}  // namespace
}  // namespace split
