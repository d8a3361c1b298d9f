// --legacy-routes: what the original project's web page gets is what its JavaScript expects.
#include "support/cloud_fixture.h"

namespace split::cloud {
namespace {

constexpr const char* kUrlencoded = "application/x-www-form-urlencoded; charset=UTF-8";

// Base64 as atob() reads it: no line breaks, padded.
std::vector<float> floats_of_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  EXPECT_EQ(text.size() % 4, 0u);
  std::string bytes;
  uint32_t bits = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t digit = digits.find(text[i]);
    if (text[i] == '=') {
      EXPECT_GE(i + 2, text.size());
    } else {
      EXPECT_NE(digit, digits.npos) << text[i];
    }
    bits = bits << 6 | (text[i] == '=' ? 0 : static_cast<uint32_t>(digit));
    if (i % 4 == 3) {
      for (int shift = 16; shift >= 0; shift -= 8) bytes += static_cast<char>(bits >> shift);
    }
  }
  if (text.ends_with("==")) bytes.pop_back();
  if (text.ends_with("=")) bytes.pop_back();
  EXPECT_EQ(bytes.size() % sizeof(float), 0u);
  std::vector<float> out(bytes.size() / sizeof(float));
  std::memcpy(out.data(), bytes.data(), out.size() * sizeof(float));
  return out;
}

std::string encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    char buffer[4];
    std::snprintf(buffer, sizeof buffer, "%%%02X", static_cast<unsigned char>(c));
    out += buffer;
  }
  return out;
}
std::string form(std::string_view layers, std::string_view text) {
  return cat("offline_layers=", layers, "&input_text=", encoded(text));
}

struct LegacyCloud : TestCloud {
  explicit LegacyCloud(const std::vector<std::string>& names) : TestCloud(names) {
    cloud.legacy_routes = true;
  }
  http::Reply post_form(const std::string& body, std::string_view type = kUrlencoded) {
    return ask().send("POST", "/", body, type);
  }
};

TEST(CloudLegacy, ConfigIsOfTheFirstModel) {
  LegacyCloud cloud({"rand-b", "rand-a"});
  EXPECT_EQ(json_of(cloud.ask().get("/get_model_config")), Json({{"n_layer", 2},
                                                                 {"n_head", 5},
                                                                 {"n_embd", 100},
                                                                 {"vocab_size", 257},
                                                                 {"block_size", 33}}));
}

// Linear weights in [out, in], everything else as it is; each f32 whatever the checkpoint has.
TEST(CloudLegacy, WeightsAreLinearWeightsTurned) {
  LegacyCloud cloud({"demo", "rand-b"});
  for (const size_t model : {0u, 1u}) {
    if (model == 1) std::swap(cloud.cloud.models[0], cloud.cloud.models[1]);
    const Checkpoint& checkpoint = cloud.cloud.models[0]->checkpoint();
    size_t turned = 0;
    for (const Blob& blob : cloud.cloud.models[0]->model().blobs()) {
      if (blob.name == "h.0") continue;  // one block is enough
      if (checkpoint.find(blob.weights[0].name) == nullptr)
        continue;  // a tied head, quantised only
      for (const WeightDecl& decl : blob.weights) {
        if (model == 0 && blob.name != "h.7" && blob.name != "ln_f") continue;
        const Json json =
            json_of(cloud.ask().get(cat("/get_model_weights/transformer.", decl.name)));
        const auto got = floats_of_base64(json["layer"]);
        const OwnedTensor expected = converted(checkpoint.at(decl.name), DType::kF32);
        std::vector<float> values(expected.storage.size() / sizeof(float));
        std::memcpy(values.data(), expected.storage.data(), expected.storage.size());
        ASSERT_EQ(got.size(), values.size()) << decl.name;
        const bool linear = decl.name.find(".c_") != std::string::npos && decl.dims.size() == 2;
        if (linear) {
          ++turned;
          const auto in = size_t(decl.dims[0]), out = size_t(decl.dims[1]);
          for (size_t i = 0; i < values.size(); ++i) {
            ASSERT_EQ(got[i], values[i % in * out + i / in]) << decl.name << " " << i;
          }
        } else {
          ASSERT_TRUE(got == values) << decl.name;
        }
      }
    }
    EXPECT_EQ(turned, 4u);
  }
  const std::string head = cloud.ask().get("/get_model_weights/lm_head.weight").body;
  EXPECT_TRUE(head == cloud.ask().get("/get_model_weights/transformer.wte.weight").body);
}

TEST(CloudLegacy, UnknownWeightsAre404) {
  LegacyCloud cloud({"rand-b"});
  for (const char* name : {"x", "h.0.ln_1.weight", "transformer.", "transformer.h.2.ln_1.weight",
                           "transformer.h.0.attn.bias", "transformer.transformer.wte.weight",
                           "..%2Fconfig.json", "lm_head.bias"}) {
    expect_error(cloud.ask().get(cat("/get_model_weights/", name)), 404, "not_found", "", name);
  }
}

// The hidden state after block L - n - 1, as PyTorch has it.
TEST(CloudLegacy, PartialStateIsPyTorchs) {
  const Golden golden("demo");
  LegacyCloud cloud({"demo"});
  const auto channels = static_cast<size_t>(cloud.config().channels);
  const int layers = cloud.config().layers;
  int prompts = 0;
  for (size_t p = 0; p < golden.json["prompts"].size(); ++p) {
    const Json& prompt = golden.json["prompts"][p];
    const std::string text = prompt["text"];
    if (!prompt["text_encodes_to_ids"].get<bool>() || text.find("<|") != text.npos) continue;
    ++prompts;
    const auto last = golden.values<float>(cat("p", p, ".hidden_last"));
    const size_t tokens = golden.ids(static_cast<int>(p)).size();
    for (const int n : {0, 1, 3, layers}) {
      const Json json = json_of(cloud.post_form(form(cat(n), text)));
      EXPECT_EQ(json["partial_state_shape"], Json({1, tokens, channels}));
      EXPECT_EQ(json["decoded_out"], "");
      EXPECT_FALSE(json["hash"].get<std::string>().empty());
      EXPECT_EQ(json.size(), 4u);
      const auto got = floats_of_base64(json["partial_state"]);
      ASSERT_EQ(got.size(), tokens * channels);
      EXPECT_LT(relative(std::span(got).last(channels),
                         std::span(last).subspan(size_t(layers - n) * channels, channels)),
                2e-5)
          << text << " " << n;
    }
    if (prompts == 3) break;
  }
  EXPECT_EQ(prompts, 3);
}

TEST(CloudLegacy, BothKindsOfFormsAreTaken) {
  LegacyCloud cloud({"demo"});
  const std::string expected = cloud.post_form(form("2", "The king & \xe2\x82\xac")).body;
  const std::string body =
      "--b\r\nContent-Disposition: form-data; name=\"input_text\"\r\n\r\nThe king & "
      "\xe2\x82\xac\r\n"
      "--b\r\nContent-Disposition: form-data; name=\"offline_layers\"\r\n\r\n2\r\n--b--\r\n";
  const http::Reply got = cloud.post_form(body, "multipart/form-data; boundary=b");
  EXPECT_EQ(got.status, 200) << got.body;
  EXPECT_TRUE(got.body == expected);
  // A special token in the text is text.
  const Json plain = json_of(cloud.post_form(form("8", "<|endoftext|>")));
  EXPECT_GT(plain["partial_state_shape"][1], 1);
}

TEST(CloudLegacy, BadFormsAreOneLine) {
  LegacyCloud cloud({"demo"});
  for (const char* layers : {"9", "-1", "1.5", "", "x", "18446744073709551616"}) {
    expect_error(cloud.post_form(form(layers, "a")), 400, "invalid_form", "offline_layers", layers);
  }
  expect_error(cloud.post_form("input_text=a"), 400, "invalid_form", "offline_layers");
  expect_error(cloud.post_form("offline_layers=1"), 400, "invalid_form", "input_text");
  expect_error(cloud.post_form("offline_layers=1&input_text="), 400, "invalid_form", "input_text");
  expect_error(cloud.post_form("offline_layers=1&input_text=%"), 400, "invalid_form", "");
  expect_error(cloud.post_form("{}", "application/json"), 415, "unsupported_media_type",
               "Content-Type");
  std::string text;
  for (int i = 0; i < 600; ++i) text += " a";  // the context is 512
  EXPECT_EQ(cloud.post_form(form("1", text)).status, 400);
  EXPECT_EQ(json_of(cloud.post_form(form("1", "still there")))["partial_state_shape"][0], 1);
}

TEST(CloudLegacy, AreNotThereWithoutTheFlag) {
  TestCloud cloud({"rand-b"});
  for (const char* path : {"/get_model_config", "/get_model_weights/transformer.wte.weight"}) {
    expect_error(cloud.ask().get(path), 404, "not_found", "", path);
  }
  expect_error(cloud.ask().send("POST", "/", form("1", "a"), kUrlencoded), 404, "not_found", "");
  EXPECT_EQ(cloud.ask().get("/").status, 200);
  cloud.cloud.legacy_routes = true;
  EXPECT_TRUE(cloud.ask().get("/").body.starts_with("curl"));  // GET / stays ours
}

}  // namespace
}  // namespace split::cloud
