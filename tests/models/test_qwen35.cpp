// Qwen3.5's config.json: both of its forms, and each setting that is refused by its name.
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "models/model.h"
#include "models/qwen35_config.h"

namespace split {
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

// Nobody can load one before states can be moved and cut back.
TEST(Qwen35Config, IsNoModelOfTheRegistryYet) {
  for (const char* const name : {"qwen35", "qwen35-text"}) {
    EXPECT_THROW(make_model(golden_config(name).dump()), Error);
  }
}

}  // namespace
}  // namespace split
