// Qwen3.5: its config.json in both forms, and each setting that is refused by its name; and what
// transformers computes, at every point, at every cut with the bits of the whole.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "models/qwen35.h"
#include "models/qwen35_config.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

Json golden_config(const std::string& name) {
  const std::string path = cat(SPLIT_SOURCE_DIR, "/tests/golden/models/", name, "/config.json");
  return parse_json(read_file(path, 1 << 20), 16, name);
}
Qwen35Config read(const Json& config) { return read_qwen35_config(config.dump(), {}); }

TEST(Qwen35Config, ReadsSettingsInsideTextConfig) {
  const Qwen35Config config = read(golden_config("qwen35"));
  EXPECT_EQ(config.model_type, "qwen3_5");
  EXPECT_EQ(config.layers, 8);
  EXPECT_EQ(config.channels, 48);
  EXPECT_EQ(config.full, (std::vector<bool>{false, false, false, true, false, false, false, true}));
  EXPECT_EQ(config.heads, 4);
  EXPECT_EQ(config.kv_heads, 2);
  EXPECT_EQ(config.head_dim, 32);
  EXPECT_EQ(config.turned, 8);
  EXPECT_EQ(config.rope.theta, 1e7);
  EXPECT_EQ(config.state.key_heads, 2u);
  EXPECT_EQ(config.state.value_heads, 4u);
  EXPECT_EQ(config.state.key_dim, 12u);
  EXPECT_EQ(config.state.value_dim, 12u);
  EXPECT_EQ(config.state.taps, 4u);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.stops, std::vector<int>{638});
}

TEST(Qwen35Config, ReadsFlatSettings) {
  const Qwen35Config config = read(golden_config("qwen35-text"));
  EXPECT_EQ(config.model_type, "qwen3_5_text");
  EXPECT_EQ(config.full, (std::vector<bool>{false, true, false, false, true}));
  EXPECT_EQ(config.turned, 4);
  EXPECT_EQ(config.state.value_heads, 3u);
  EXPECT_EQ(config.state.value_dim, 20u);
  EXPECT_FALSE(config.tied_head);
}

TEST(Qwen35Config, TakesEachFourthBlockForFullWithoutTypes) {
  Json config = golden_config("qwen35-text");
  config["layer_types"] = Json();
  EXPECT_EQ(read(config).full, (std::vector<bool>{false, false, false, true, false}));
  config["full_attention_interval"] = 2;
  EXPECT_EQ(read(config).full, (std::vector<bool>{false, true, false, true, false}));
}

// A word that programs of before do not know.
TEST(Qwen35Config, ReadsHeadsOfValuesInRounds) {
  Json config = golden_config("qwen35")["text_config"];
  EXPECT_FALSE(read(config).state.tiled);
  const bool full[] = {false, false, false, true, false, false, false, true};
  Json types = Json::array();
  for (const bool one : full) types.push_back(one ? "full_attention" : "tiled_linear_attention");
  config["layer_types"] = types;
  const Qwen35Config tiled = read(config);
  EXPECT_TRUE(tiled.state.tiled);
  EXPECT_EQ(tiled.full, read(golden_config("qwen35")).full);
  std::vector<size_t> heads;
  for (size_t n = 0; n < 4; ++n) heads.push_back(tiled.state.value_head(n / 2, n % 2));
  EXPECT_EQ(heads, (std::vector<size_t>{0, 2, 1, 3}));
}

TEST(Qwen35Config, TakesAQuarterOfAHeadForTurnedAndTheOlderSpelling) {
  Json config = golden_config("qwen35-text");
  config["partial_rotary_factor"] = Json();
  config["rope_parameters"] = Json();
  config["rope_theta"] = 5e6;
  EXPECT_EQ(read(config).turned, 4);
  EXPECT_EQ(read(config).rope.theta, 5e6);
  config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(read(config).turned, 8);
}

TEST(Qwen35Config, RefusesEachUnsupportedSettingByItsName) {
  const auto message = [](const char* key, const Json& value) -> std::string {
    Json config = golden_config("qwen35-text");
    config[key] = value;
    try {
      read(config);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return error.what();
    }
    return "nothing was thrown";
  };
  const struct {
    const char* key;
    Json value;
    const char* expected;
  } cases[] = {
      {"layer_types", parse_json(R"(["full_attention"])", 4, ""),
       "[config.json] layer_types: expected a list of 5, got one of 1"},
      {"layer_types", Json(3), "[config.json] layer_types: expected a list of 5, got 3"},
      {"layer_types",
       parse_json(R"(["full_attention", "linear_attention", "sliding_attention", "full_attention",
                      "full_attention"])",
                  4, ""),
       "[config.json] layer_types: expected \"full_attention\" or \"linear_attention\", got "
       "\"sliding_attention\""},
      {"layer_types",
       parse_json(R"(["tiled_linear_attention", "full_attention", "linear_attention",
                      "full_attention", "full_attention"])",
                  4, ""),
       "[config.json] layer_types: expected \"full_attention\" or \"tiled_linear_attention\", got "
       "\"linear_attention\""},
      {"linear_num_key_heads", Json(2),
       "[config.json] linear_num_key_heads: expected a divisor of linear_num_value_heads 3, got 2"},
      {"num_key_value_heads", Json(4),
       "[config.json] num_key_value_heads: expected a divisor of num_attention_heads 6, got 4"},
      {"linear_key_head_dim", Json(257),
       "[config.json] linear_key_head_dim: expected a whole number in 1..256, got 257"},
      {"linear_value_head_dim", Json(512),
       "[config.json] linear_value_head_dim: expected a whole number in 1..256, got 512"},
      {"linear_num_value_heads", Json(3 << 17),
       "[config.json] linear_value_head_dim: expected at most 1048576 channels of all heads, got "
       "7864320"},
      {"linear_conv_kernel_dim", Json(1),
       "[config.json] linear_conv_kernel_dim: expected a whole number in 2..8, got 1"},
      {"linear_conv_kernel_dim", Json(9),
       "[config.json] linear_conv_kernel_dim: expected a whole number in 2..8, got 9"},
      {"attn_output_gate", Json(false),
       "[config.json] attn_output_gate: expected true: queries have a gate each"},
      {"attention_bias", Json(true),
       "[config.json] attention_bias: expected false: products have no bias"},
      {"hidden_act", Json("gelu"), "[config.json] hidden_act: expected silu, got gelu"},
      {"head_dim", Json(12),
       "[config.json] partial_rotary_factor: expected pairs of the 12 channels of a head, got 3 "
       "channels"},
      {"rope_parameters", Json(), "[config.json] rope_theta: expected a number, got none"},
      {"text_config", Json(3), "[config.json] text_config: expected an object, got 3"},
  };
  for (const auto& c : cases) EXPECT_EQ(message(c.key, c.value), c.expected);
}

TEST(Qwen35Stages, SayWhatTheyDoWithEarlierRows) {
  const auto model = make_qwen35(golden_config("qwen35").dump(), {});
  EXPECT_EQ(model->stage("embed").kind(), "");
  EXPECT_EQ(model->stage("block.2").kind(), "linear attention");
  EXPECT_EQ(model->stage("block.3").kind(), "attention");
}

// --- Goldens

struct Golden35 : GoldenValues {
  explicit Golden35(const std::string& name)
      : GoldenValues("models/" + name),
        notes(parse_json(read_file(source("tests/golden/models/" + name + "/golden.json"), 1 << 20),
                         16, "[golden.json]")),
        weights_file(source("tests/golden/models/" + name + "/model.safetensors")),
        model(make_qwen35(golden_config(name).dump(), {})) {
    for (const auto& [full, view] : Safetensors::parse(weights_file.bytes(), name).tensors()) {
      views.emplace(kQwen35Names.name_of(full), view);
    }
  }
  WeightSource weights() const {
    return [this](const std::string& name) {
      const WeightDecl& decl = model->weight(name);
      return views.at(decl.from.empty() ? name : decl.from);
    };
  }
  Shard shard(Device& device, const StageRange& range = {}) const {
    return {device, *model, weights(), options_for(*model, range)};
  }
  double error(int prompt, const char* of) const {
    return notes["prompts"][static_cast<size_t>(prompt)]["float32_error"][of].get<double>();
  }
  Json notes;
  MappedFile weights_file;
  std::unique_ptr<Model> model;
  std::map<std::string, TensorView> views;
};

class Qwen35 : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    try {
      device = make_device({std::get<1>(GetParam()), 2});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      GTEST_SKIP() << error.what();
    }
  }
  // Not the CPU in its place.
  void TearDown() override {
    if (device != nullptr) {
      EXPECT_EQ(golden.shard(*device).device().name(), device->name());
    }
  }
  const Golden35 golden{std::get<0>(GetParam())};
  std::unique_ptr<Device> device;
  const int layers = golden.model->config().layers;
  const uint32_t channels = static_cast<uint32_t>(golden.model->config().channels);
};

TEST_P(Qwen35, EveryPointIsTransformers) {
  Shard whole = golden.shard(*device);
  expect_every_point(whole, golden, golden.model->config(),
                     [&](int p) { return 10 * golden.error(p, "hidden"); });
}

TEST_P(Qwen35, LogitsAndGreedyTextAreTransformers) {
  Shard whole = golden.shard(*device);
  size_t owed = 0;
  for (int p = 0; p < golden.prompts(); ++p) {
    const std::string prefix = cat("p", p, ".");
    const double bound = 10 * golden.error(p, "logits");
    Line line(whole);
    std::vector<float> logits = line.run({.tokens = golden.ids(p)});
    EXPECT_LE(largest_gap(logits, golden.values<float>(prefix + "logits_last")), bound) << p;
    const auto greedy = golden.values<int32_t>(prefix + "greedy_ids");
    const auto margins = golden.values<float>(prefix + "greedy_margin");
    for (size_t i = 0; i < greedy.size() && double{margins[i]} >= bound; ++i, ++owed) {
      const auto next = static_cast<int32_t>(std::ranges::max_element(logits) - logits.begin());
      ASSERT_EQ(next, greedy[i]) << "prompt " << p << " token " << i;
      logits = line.run({.tokens = std::span(&next, 1), .phase = Phase::kGenerate});
    }
  }
  EXPECT_GT(owed, 100u);
}

// Below the cut, above it, and the head on either side: the bits of the whole, in pieces too.
TEST_P(Qwen35, EachCutHasTheBitsOfTheWhole) {
  int prompt = 0;
  while (golden.ids(prompt).size() != 70) ++prompt;
  const auto ids = golden.ids(prompt);
  Shard all = golden.shard(*device);
  Line whole(all);
  const auto want = whole.run({.tokens = ids, .wanted = Wanted::kAll});
  const size_t vocab = want.size() / ids.size();
  for (int cut = 0; cut <= layers; ++cut) {
    const StageRange below{.to = cut}, above{cut, Point::head()};
    Shard cloud = golden.shard(*device, below), edge = golden.shard(*device, above);
    Line lower(cloud), upper(edge);
    size_t at = 0;
    for (const size_t rows : {7, 16, 1, 1, 30, 2, 13}) {
      const std::span<const int32_t> piece = std::span(ids).subspan(at, rows);
      const auto hidden = lower.run({.range = below, .tokens = piece, .wanted = Wanted::kAll});
      const auto got =
          upper.run({.range = above, .hidden = hidden, .width = channels, .wanted = Wanted::kAll});
      ASSERT_TRUE(std::ranges::equal(got, std::span(want).subspan(at * vocab, rows * vocab)))
          << "cut " << cut << " row " << at;
      at += rows;
    }
    EXPECT_EQ(at, ids.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Qwen35,
                         testing::Combine(testing::Values("qwen35", "qwen35-text"),
                                          testing::Values("cpu", "vulkan")));

}  // namespace
}  // namespace split::test
