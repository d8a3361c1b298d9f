// Fine-tuned GPT-2s: every setting of config.json that changes what is computed, against the
// formulas in double; and exactly what is said of those that are not supported.
#include <gtest/gtest.h>

#include <map>

#include "naive_gpt2.h"
#include "run/random_weights.h"
#include "support/golden_model.h"

namespace split {
namespace {

using Json = nlohmann::json;
using test::NaiveGpt2;
using test::options_for;
using test::RandomWeights;
using test::relative;

std::vector<float> run(Shard& shard, const SequenceRows& rows) {
  Batcher batcher(shard);
  const SequenceId id = shard.pages().open();
  std::vector<float> out = test::append(batcher, id, rows);
  shard.pages().close(id);
  return out;
}

double distance(std::span<const float> got, const std::vector<double>& expected) {
  return relative(got, std::vector<float>(expected.begin(), expected.end()));
}

void expect_as_naive(const Json& config, const Model& model, const WeightSource& weights,
                     const NaiveGpt2& naive, const std::vector<int32_t>& ids) {
  const NaiveGpt2::Result expected = naive.run(ids);
  const auto device = make_device({"cpu", 1});
  const int layers = model.config().layers;
  Shard whole(*device, model, weights, options_for(model));
  std::vector<Point> points = {Point::norm()};
  for (int block = 0; block <= layers; ++block) points.emplace_back(block);
  for (const Point to : points) {
    const auto got = run(whole, {.range = {.to = to}, .tokens = ids, .wanted = Wanted::kAll});
    EXPECT_LT(distance(got, expected.points[static_cast<size_t>(to.stage(layers))]), 2e-6)
        << config << " point " << to.name();
  }
  EXPECT_LT(distance(run(whole, {.tokens = ids}), expected.logits), 2e-6) << config;
  // Cut in two: the second half's layer numbers are not the first's.
  const StageRange first{.to = 1}, second{1, Point::head()};
  Shard head(*device, model, weights, options_for(model, first));
  Shard tail(*device, model, weights, options_for(model, second));
  const auto hidden = run(head, {.range = first, .tokens = ids, .wanted = Wanted::kAll});
  const auto width = static_cast<uint32_t>(model.config().channels);
  const auto logits = run(tail, {.range = second, .hidden = hidden, .width = width});
  EXPECT_LT(distance(logits, expected.logits), 2e-6) << config;
}

Json base_config() {
  return {{"model_type", "gpt2"}, {"n_layer", 3},      {"n_embd", 40},
          {"n_head", 5},          {"vocab_size", 131}, {"n_positions", 17}};
}

TEST(Variants, EverySettingIsComputedAsDefined) {
  const std::vector<Json> changes = {
      Json::object(),
      {{"activation_function", "gelu_new"}},
      {{"activation_function", "gelu"}},
      {{"activation_function", "relu"}},
      {{"activation_function", "silu"}},
      {{"activation_function", "gelu_pytorch_tanh"}},
      {{"activation_function", "gelu_fast"}},
      {{"activation_function", "gelu_python"}},
      {{"activation_function", "swish"}},
      {{"n_inner", 56}},
      {{"n_inner", nullptr}, {"scale_attn_by_inverse_layer_idx", true}},
      {{"scale_attn_weights", false}},
      {{"tie_word_embeddings", false}},
      {{"layer_norm_epsilon", 0.5}},
      {{"vocab_size", 5}, {"n_positions", 16}},
      {{"n_head", 1}},
      {{"n_embd", 36}, {"n_head", 4}},
      {{"n_inner", 23},
       {"activation_function", "relu"},
       {"scale_attn_by_inverse_layer_idx", true},
       {"scale_attn_weights", false},
       {"tie_word_embeddings", false},
       {"reorder_and_upcast_attn", true},
       {"layer_norm_epsilon", 1e-3},
       {"vocab_size", 67}},
  };
  for (const Json& change : changes) {
    Json config = base_config();
    config.update(change);
    const auto model = make_model(config.dump());
    const RandomWeights weights(*model);
    const NaiveGpt2 naive{config, [&](const std::string& name) {
                            const auto& values = weights.tensors.at(name).second;
                            return std::vector<double>(values.begin(), values.end());
                          }};
    std::vector<int32_t> ids;
    for (int i = 0; i < 16; ++i) ids.push_back(i * i % config["vocab_size"].get<int>());
    expect_as_naive(
        change, *model, [&](const std::string& name) { return weights.view(name); }, naive, ids);
  }
}

// The formulas in double are PyTorch's too.
TEST(Variants, TheFormulasAgreeWithPyTorch) {
  for (const char* name : {"rand-a", "rand-b", "rand-c"}) {
    const test::Golden golden(name);
    const NaiveGpt2 naive{Json::parse(golden.checkpoint.config_json()), [&](const std::string& of) {
                            const OwnedTensor owned =
                                converted(golden.checkpoint.at(of), DType::kF32);
                            std::vector<float> values(owned.storage.size() / sizeof(float));
                            std::memcpy(values.data(), owned.storage.data(), owned.storage.size());
                            return std::vector<double>(values.begin(), values.end());
                          }};
    const auto result = naive.run(golden.values<int32_t>("p0.ids"));
    const auto logits = golden.values<float>("p0.logits_last");
    ASSERT_EQ(logits.size(), result.logits.size());
    EXPECT_LT(distance(logits, result.logits), 2e-6) << name;
  }
}

std::string refusal_of(const Json& config) {
  try {
    make_model(config.dump());
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

TEST(Variants, NameWhatIsNotSupported) {
  const auto with = [](const char* key, const Json& value) {
    Json config = base_config();
    config[key] = value;
    return refusal_of(config);
  };
  EXPECT_EQ(refusal_of(base_config()), "");
  EXPECT_EQ(with("model_type", "gpt_neo"),
            "[config.json] model_type: expected \"gpt2\", \"bert\", \"roberta\", \"xlm-roberta\", "
            "\"mpnet\", \"llama\", \"mistral\", "
            "\"qwen2\", \"qwen3\", \"gemma2\", \"gemma3_text\", \"modernbert\", \"qwen3_5\", "
            "\"qwen3_5_text\", \"gemma4\" or \"gemma4_text\", got 'gpt_neo'");
  EXPECT_EQ(with("activation_function", "quick_gelu"),
            "[config.json] activation_function: expected gelu_new, gelu, relu or silu, got "
            "'quick_gelu'");
  EXPECT_EQ(with("activation_function", 3),
            "[config.json] activation_function: expected a string, got 3");
  EXPECT_EQ(with("add_cross_attention", true),
            "[config.json] add_cross_attention: expected false: cross attention is not supported");
  EXPECT_EQ(with("n_head", 7), "[config.json] n_head: expected a divisor of n_embd 40, got 7");
  EXPECT_EQ(with("n_inner", 0),
            "[config.json] n_inner: expected a whole number in 1..1048576, got 0");
  EXPECT_EQ(with("n_layer", nullptr),
            "[config.json] n_layer: expected a whole number in 1..1024, got none");
  EXPECT_EQ(with("vocab_size", 5.5),
            "[config.json] vocab_size: expected a whole number in 1..16777216, got 5.5");
  EXPECT_EQ(with("layer_norm_epsilon", 0),
            "[config.json] layer_norm_epsilon: expected a number in 1e-12..1, got 0");
  EXPECT_EQ(with("quantization_config", Json::object({{"quant_method", "gptq"}})),
            "[config.json] quantization_config: expected none, got {\"quant_method\":\"gptq\"}: "
            "weights packed by other tools are not supported");
}

}  // namespace
}  // namespace split
