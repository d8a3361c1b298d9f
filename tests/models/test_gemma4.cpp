// Gemma 4: its config.json in both forms, and each setting that is refused by its name.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "models/gemma4_config.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

Json golden_json(const std::string& name, const char* file) {
  return parse_json(read_file(source(cat("tests/golden/models/", name, "/", file)), 1 << 20), 16,
                    name);
}
Gemma4Config read_gemma(const Json& config) { return read_gemma4_config(config.dump(), {}); }

template <typename Value>
std::vector<Value> of_blocks(const Gemma4Config& config, Value Gemma4Block::*member) {
  std::vector<Value> all;
  for (const Gemma4Block& block : config.blocks) all.push_back(block.*member);
  return all;
}

TEST(Gemma4Config, ReadsSettingsInsideTextConfig) {
  const Gemma4Config config = read_gemma(golden_json("gemma4", "config.json"));
  EXPECT_EQ(config.model_type, "gemma4");
  EXPECT_EQ(config.layers, 7);
  EXPECT_EQ(config.channels, 42);
  EXPECT_EQ(config.per_layer, 10);
  EXPECT_EQ(of_blocks(config, &Gemma4Block::source), (std::vector{0, 1, 2, 3, 3, 3, 2}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::inner), (std::vector{44, 44, 44, 44, 88, 88, 88}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::head_dim), (std::vector{12, 12, 24, 12, 12, 12, 24}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::window), (std::vector{9, 9, 0, 9, 9, 9, 0}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::values), std::vector<bool>(7, true));
  EXPECT_EQ(config.rope.type, RopeConfig::Type::kProportional);
  EXPECT_EQ(config.rope.part, 0.25);
  EXPECT_EQ(config.window_rope.theta, 10000);
  EXPECT_EQ(config.logit_cap, 6);
  EXPECT_TRUE(config.tied_head);
  EXPECT_EQ(config.stops, std::vector<int>{1});
}

TEST(Gemma4Config, ReadsFlatSettings) {
  const Gemma4Config config = read_gemma(golden_json("gemma4-dense", "config.json"));
  EXPECT_EQ(config.model_type, "gemma4_text");
  EXPECT_EQ(config.per_layer, 0);
  EXPECT_EQ(of_blocks(config, &Gemma4Block::source), (std::vector{0, 1, 2, 3}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::kv_heads), (std::vector{2, 1, 2, 1}));
  EXPECT_EQ(of_blocks(config, &Gemma4Block::values), (std::vector<bool>{true, false, true, false}));
}

TEST(Gemma4Config, TakesTransformersDefaults) {
  Json config = golden_json("gemma4-dense", "config.json");
  for (const char* key : {"layer_types", "rope_parameters", "global_head_dim", "sliding_window"}) {
    config[key] = Json();
  }
  config["num_hidden_layers"] = 8;
  const Gemma4Config got = read_gemma(config);
  EXPECT_EQ(of_blocks(got, &Gemma4Block::full),
            (std::vector<bool>{false, false, false, false, false, true, false, true}));
  EXPECT_EQ(got.blocks[5].head_dim, 512);
  EXPECT_EQ(got.blocks[0].window, 512);
  EXPECT_EQ(got.rope.theta, 1e6);
  EXPECT_EQ(got.rope.part, 0.25);
}

TEST(Gemma4Config, TurnsTheLeadingPairsByExponentsOverTheWholeHead) {
  const RopeConfig rope{.type = RopeConfig::Type::kProportional, .theta = 1e4, .part = 0.5};
  const auto got = inverse_frequencies(rope, 8);
  ASSERT_EQ(got.size(), 4u);
  EXPECT_EQ(got[0], 1);
  EXPECT_FLOAT_EQ(got[1], 0.1f);
  EXPECT_EQ(got[2], 0);
  EXPECT_EQ(got[3], 0);
}

TEST(Gemma4Config, RefusesEachUnsupportedSettingByItsName) {
  const auto message = [](const char* key, const Json& value) -> std::string {
    Json config = golden_json("gemma4", "config.json");
    (key == std::string("text_config") ? config : config["text_config"])[key] = value;
    try {
      read_gemma(config);
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
       "[config.json] layer_types: expected a list of 7, got one of 1"},
      {"layer_types", Json(3), "[config.json] layer_types: expected a list of 7, got 3"},
      {"layer_types",
       parse_json(R"(["full_attention", "linear_attention", "full_attention", "full_attention",
                      "full_attention", "full_attention", "full_attention"])",
                  4, ""),
       "[config.json] layer_types: expected \"full_attention\" or \"sliding_attention\", got "
       "\"linear_attention\""},
      {"num_kv_shared_layers", Json(5),
       "[config.json] num_kv_shared_layers: expected a block of full_attention among the first 2, "
       "whose keys and values block 2 shares, got none"},
      {"num_kv_shared_layers", Json(7),
       "[config.json] num_kv_shared_layers: expected a block of sliding_attention among the first "
       "0, whose keys and values block 0 shares, got none"},
      {"num_kv_shared_layers", Json(8),
       "[config.json] num_kv_shared_layers: expected a whole number in 0..7, got 8"},
      {"enable_moe_block", Json(true),
       "[config.json] enable_moe_block: expected false: blocks have no experts here"},
      {"vocab_size_per_layer_input", Json(814),
       "[config.json] vocab_size_per_layer_input: expected vocab_size 815, got 814"},
      {"attention_bias", Json(true),
       "[config.json] attention_bias: expected false: products have no bias"},
      {"use_bidirectional_attention", Json("all"),
       "[config.json] use_bidirectional_attention: expected null: rows see those before them"},
      {"num_key_value_heads", Json(3),
       "[config.json] num_key_value_heads: expected a divisor of num_attention_heads 4, got 3"},
      {"head_dim", Json(13), "[config.json] head_dim: expected pairs of channels, got 13"},
      {"global_head_dim", Json(15),
       "[config.json] global_head_dim: expected pairs of channels, got 15"},
      {"hidden_size_per_layer_input", Json(1 << 19),
       "[config.json] hidden_size_per_layer_input: expected at most 1048576 channels of all "
       "blocks, got 3670016"},
      {"per_layer_config", parse_json("{}", 4, ""),
       "[config.json] per_layer_config: expected none: full blocks' heads by global_head_dim"},
      {"hidden_activation", Json("tanh"),
       "[config.json] hidden_activation: expected gelu_new, gelu, relu or silu, got 'tanh'"},
      {"text_config", Json(3), "[config.json] text_config: expected an object, got 3"},
  };
  for (const auto& c : cases) EXPECT_EQ(message(c.key, c.value), c.expected);
}

}  // namespace
}  // namespace split::test
