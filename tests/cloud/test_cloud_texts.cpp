// Lists of texts without a session, embeddings, and what an encoder refuses.
#include <numeric>

#include "support/cloud_fixture.h"

namespace split::cloud {
namespace {

// One cloud for all its tests, which ends before the process does.
class CloudTexts : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    encoders = std::make_unique<TestCloud>(
        std::vector{path("st-minilm"), path("st-labse"), path("st-bge")});
  }
  static void TearDownTestSuite() { encoders.reset(); }
  static std::string path(const std::string& name) { return source("tests/golden/models/" + name); }
  static Caller& ask_encoders() { return encoders->ask(); }

 private:
  static inline std::unique_ptr<TestCloud> encoders;
};

std::vector<std::vector<int32_t>> ids_of(const Golden& golden, const std::string& kind) {
  std::vector<std::vector<int32_t>> all;
  for (int i = 0; golden.has(cat("p", i, ".", kind)); ++i) {
    all.push_back(golden.values<int32_t>(cat("p", i, ".", kind)));
  }
  return all;
}

const char* const kForward = "/v1/models/st-minilm/forward";

void expect_near(std::span<const float> got, std::span<const float> want, float bound) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], bound) << i;
}

std::vector<int32_t> lengths_of(const std::string& frame) {
  const Safetensors file = Safetensors::parse(as_bytes_of(frame), "the answer");
  const TensorView& view = file.tensors().at("lengths");
  EXPECT_EQ(view.dtype, DType::kI32);
  std::vector<int32_t> out(view.bytes.size() / sizeof(int32_t));
  std::memcpy(out.data(), view.bytes.data(), view.bytes.size());
  return out;
}

TEST_F(CloudTexts, ListsOfTextsAreAnsweredInOneFrameAndGoOnFromIt) {
  Caller& ask = ask_encoders();
  const Golden golden("models/st-minilm");
  const auto texts = ids_of(golden, "ids");
  const std::string whole = ask.post_for_tensors(kForward, {{"tokens", texts}, {"to", 2}}).body;
  std::vector<int32_t> lengths;
  for (const auto& ids : texts) lengths.push_back(static_cast<int32_t>(ids.size()));
  EXPECT_EQ(lengths_of(whole), lengths);
  EXPECT_EQ(ask.post_for_tensors(kForward, {{"tokens", texts}, {"to", "norm"}}).body, whole)
      << "the last state is normed";
  EXPECT_EQ(ask.post_for_tensors(kForward, {{"tokens", texts}}).body, whole);
  const auto rows = floats_of(whole, "hidden");
  size_t at = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const size_t size = texts[i].size() * 48;
    const auto all = golden.values<float>(cat("p", i, ".hidden_all"));
    expect_near(std::span(rows).subspan(at, size), std::span(all).last(size), 2e-4f);
    const auto alone = ask.post_for_tensors(kForward, {{"tokens", texts[i]}, {"to", 2}}).body;
    EXPECT_EQ(floats_of(alone, "hidden"), std::vector(rows.begin() + static_cast<long>(at),
                                                      rows.begin() + static_cast<long>(at + size)));
    at += size;
  }
  for (const int k : {0, 1, 2}) {
    const std::string half = ask.post_for_tensors(kForward, {{"tokens", texts}, {"to", k}}).body;
    EXPECT_EQ(ask.post_tensors(cat(kForward, "?from=", k), half).body, whole) << k;
  }
  const Json json = json_of(ask.post(kForward, {{"tokens", texts}, {"to", 2}}));
  EXPECT_EQ(json["lengths"], lengths);
  EXPECT_EQ(flat(json["hidden"]), rows);
}

TEST_F(CloudTexts, PoolsWhereTheTextsEnd) {
  Caller& ask = ask_encoders();
  for (const std::string name : {"st-minilm", "st-labse", "st-bge"}) {
    const Golden golden("models/" + name);
    const auto texts = ids_of(golden, "embedding_ids");
    const std::string path = cat("/v1/models/", name, "/forward");
    const std::string all = ask.post_for_tensors(path, {{"tokens", texts}, {"to", "pool"}}).body;
    const auto rows = floats_of(all, "embedding");
    const size_t width = rows.size() / texts.size();
    for (size_t i = 0; i < texts.size(); ++i) {
      const auto want = golden.values<float>(cat("p", i, ".embedding"));
      expect_near(std::span(rows).subspan(i * width, width), want,
                  name == "st-bge" ? 2e-5f : 1e-6f);
    }
    const std::string half = ask.post_for_tensors(path, {{"tokens", texts}, {"to", 1}}).body;
    EXPECT_EQ(ask.post_tensors(path + "?from=1&to=pool", half).body, all);
    const auto one = floats_of(
        ask.post_for_tensors(path, {{"tokens", texts[0]}, {"to", "pool"}}).body, "embedding");
    EXPECT_EQ(one, std::vector(rows.begin(), rows.begin() + static_cast<long>(width)));
  }
}

TEST_F(CloudTexts, HalvesTakeHalfOfTheFrame) {
  Caller& ask = ask_encoders();
  const std::vector<std::vector<int32_t>> texts = {{2, 9, 11, 3}, {2, 5, 3}};
  const Json body = {{"tokens", texts}, {"to", 1}};
  Json halves = body;
  halves["dtype"] = "f16";
  const std::string whole = ask.post_for_tensors(kForward, body).body;
  const std::string half = ask.post_for_tensors(kForward, halves).body;
  const TensorView view = Safetensors::parse(as_bytes_of(half), "half").tensors().at("hidden");
  ASSERT_EQ(view.dtype, DType::kF16);
  std::vector<float> got(7 * 48);
  convert(view, DType::kF32, std::as_writable_bytes(std::span(got)));
  const auto want = floats_of(whole, "hidden");
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-3f * std::max(1.0f, std::abs(want[i])));
  }
  EXPECT_EQ(ask.post_tensors(cat(kForward, "?from=1"), half).status, 200) << "and is taken so";
  expect_error(ask.post(kForward, halves), 400, "invalid_request", "dtype");
}

TEST_F(CloudTexts, RefuseWhatIsNoListOfTexts) {
  Caller& ask = ask_encoders();
  const auto refused = [&](const Json& body, const std::string& field) {
    expect_error(ask.post(kForward, body), 400, "invalid_request", field, body.dump());
  };
  const std::vector<int32_t> longest(49, 3);
  refused({{"tokens", Json::array({Json::array()})}}, "tokens");
  refused({{"tokens", Json::array({Json::array({1}), 2})}}, "tokens");
  refused({{"tokens", Json::array({Json::array({900})})}}, "tokens");
  refused({{"tokens", Json::array({longest})}}, "tokens");
  refused({{"tokens", {{1}, {2}}}, {"rows", {0}}}, "rows");
  refused({{"tokens", {{1}, {2}}}, {"to", "pool"}, {"rows", "last"}}, "rows");
  refused({{"tokens", {{1}, {2}}}, {"normalize", true}}, "normalize");
  refused({{"tokens", {{1}, {2}}}, {"to", 3}}, "to");
  const std::string two =
      ask.post_for_tensors(kForward, {{"tokens", {{1, 2}, {3}}}, {"to", 1}}).body;
  std::string wrong = two;
  const size_t at = wrong.size() - sizeof(int32_t);
  for (const char last : {0, 2, 50}) {
    wrong[at] = last;
    EXPECT_EQ(ask.post_tensors(cat(kForward, "?from=1"), wrong).status, 400) << int{last};
  }
}

TEST_F(CloudTexts, AnEncoderHasNoHeadAndNoSession) {
  Caller& ask = ask_encoders();
  expect_error(ask.post(kForward, {{"tokens", {1}}, {"to", "head"}}), 400, "no_head", "");
  expect_error(ask.post("/v1/completions", {{"model", "st-minilm"}, {"prompt", {1}}}), 400,
               "no_head", "");
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  for (const char* path : {"/v1/chat/completions", "/apply-template"}) {
    expect_error(ask.post(path, {{"model", "st-minilm"}, {"messages", messages}}), 400, "no_head",
                 "");
  }
  const std::string session = "/v1/sessions/" + std::string(32, 'a');
  expect_error(ask.send("PUT", session, R"({"model":"st-minilm","from":0,"to":1})"), 400,
               "no_session", "");
  expect_error(ask.post("/v1/sessions", {{"model", "st-minilm"}, {"cut", 1}}), 400, "no_session",
               "");
}

TEST_F(CloudTexts, BecomeTheIdsOfTheirTokenizer) {
  const Golden golden("models/st-minilm");
  const auto ids = ids_of(golden, "embedding_ids");
  const Json said = Json::parse(
      read_file(source("tests/golden/models/st-minilm/golden.json"), 1 << 20))["prompts"];
  ASSERT_GE(said.size(), ids.size());
  const auto embeddings = [&](const Json& input) {
    return json_of(ask_encoders().post(
        "/v1/embeddings", {{"model", "st-minilm"}, {"input", input}, {"truncate", true}}))["data"];
  };
  Json texts = Json::array();
  for (size_t i = 0; i < ids.size(); ++i) texts.push_back(said[i]["text"]);
  EXPECT_EQ(embeddings(texts), embeddings(ids));
}

TEST_F(CloudTexts, EmbeddingsAreThoseOfSentenceTransformers) {
  Caller& ask = ask_encoders();
  const Golden golden("models/st-labse");
  const auto texts = ids_of(golden, "embedding_ids");
  Json body = {{"model", "st-labse"}, {"input", texts}};
  const Json answer = json_of(ask.post("/v1/embeddings", body));
  EXPECT_EQ(answer["usage"]["splitcompute"]["texts"], texts.size());
  size_t tokens = 0;
  for (const auto& ids : texts) tokens += ids.size();
  EXPECT_EQ(answer["usage"]["prompt_tokens"], tokens);
  const auto embedding = [&](const Json& json, size_t i) {
    return json["data"][i]["embedding"].get<std::vector<float>>();
  };
  for (size_t i = 0; i < texts.size(); ++i) {
    expect_near(embedding(answer, i), golden.values<float>(cat("p", i, ".embedding")), 1e-6f);
  }
  // Cut off, then scaled.
  body["dimensions"] = 5;
  const Json shorter = json_of(ask.post("/v1/embeddings", body));
  const auto whole = embedding(answer, 0), five = embedding(shorter, 0);
  ASSERT_EQ(five.size(), 5u);
  float length = 0;
  for (size_t i = 0; i < 5; ++i) length += whole[i] * whole[i];
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(five[i], whole[i] / std::sqrt(length), 1e-6f);
  body["dimensions"] = 21;
  expect_error(ask.post("/v1/embeddings", body), 400, "invalid_request", "dimensions");
  // A bge has no Normalize.
  const Json bge =
      json_of(ask.post("/v1/embeddings", {{"model", "st-bge"}, {"input", {{2, 7, 3}}}}));
  const auto plain = embedding(bge, 0);
  const float sum = std::inner_product(plain.begin(), plain.end(), plain.begin(), 0.0f);
  EXPECT_GT(std::abs(sum - 1), 0.1f);
}

TEST_F(CloudTexts, WhatIsTooLongIsRefusedOrCut) {
  Caller& ask = ask_encoders();
  std::vector<int32_t> ids(30, 7);
  ids.back() = 3;
  Json body = {{"model", "st-minilm"}, {"input", ids}};
  const http::Reply refused = ask.post("/v1/embeddings", body);
  expect_error(refused, 400, "input_too_long", "input");
  EXPECT_NE(refused.body.find("expected at most 24 tokens, got 30"), std::string::npos);
  body["truncate"] = true;
  const Json cut = json_of(ask.post("/v1/embeddings", body));
  EXPECT_EQ(cut["usage"]["splitcompute"]["truncated"], 1);
  std::vector<int32_t> same(ids.begin(), ids.begin() + 23);
  same.push_back(3);
  const Json whole = json_of(ask.post("/v1/embeddings", {{"model", "st-minilm"}, {"input", same}}));
  EXPECT_EQ(cut["data"], whole["data"]);
  expect_error(ask.post("/v1/embeddings",
                        {{"model", "st-bge"}, {"input", {2, 3}}, {"prompt_name", "title"}}),
               400, "invalid_request", "prompt_name");
}

TEST_F(CloudTexts, FilesOfTheModulesAreServed) {
  Caller& ask = ask_encoders();
  const Json info = json_of(ask.get("/v1/models/st-labse"));
  const auto has = [&](const char* name) {
    return std::ranges::any_of(info["files"],
                               [&](const Json& file) { return file["name"] == name; });
  };
  EXPECT_TRUE(has("modules.json"));
  EXPECT_TRUE(has("2_Dense/model.safetensors"));
  EXPECT_EQ(info["kind"], "encoder");
  EXPECT_EQ(info["dimensions"], 20);
  EXPECT_EQ(info["pooling"]["modes"], Json::array({"cls"}));
  const std::string files = "/v1/models/st-labse/files/";
  EXPECT_EQ(ask.get(files + "1_Pooling/config.json").body,
            ask.get(files + "1_Pooling%2Fconfig.json").body);
  EXPECT_EQ(ask.get(files + "1_Pooling/config.json").status, 200);
  EXPECT_EQ(ask.get(files + "..%2Fconfig.json").status, 404);
}

// Values that f16 cannot hold are an error that names what can, no damaged text (T14).
TEST_F(CloudTexts, ValuesBeyondHalvesAreAnErrorThatNamesBf16) {
  const TemporaryDir dir;
  std::filesystem::create_directory(dir.path / "large");
  write_large_model(dir.path / "large", 1e5f, 60000);
  const std::string path = "/v1/models/large/forward";
  const Json body = {{"tokens", {1}}, {"to", 1}};
  {
    TestCloud cloud({(dir.path / "large").string()});
    Json halves = body;
    halves["dtype"] = "f16";
    EXPECT_EQ(json_of(cloud.ask().post(path, body))["hidden"][0][0], 1e5);
    const http::Reply refused = cloud.ask().post_for_tensors(path, halves);
    expect_error(refused, 500, "f16_overflow", "");
    EXPECT_NE(refused.body.find("bf16"), std::string::npos) << refused.body;
  }
  for (const Profile profile : {Profile::kF16, Profile::kBF16}) {
    TestCloud cloud({(dir.path / "large").string()}, 64 << 20, {}, profile);
    const http::Reply reply = cloud.ask().post(path, body);
    if (profile == Profile::kBF16) {
      EXPECT_EQ(reply.status, 200) << reply.body;
      continue;
    }
    expect_error(reply, 500, "f16_overflow", "");
    EXPECT_NE(reply.body.find("--profile bf16"), std::string::npos) << reply.body;
  }
}

// Rows in int8 end at 2^60 on every device: a text is told so too.
TEST_F(CloudTexts, RowsBeyondInt8AreAnOverflow) {
  const TemporaryDir dir;
  std::filesystem::create_directory(dir.path / "large");
  write_large_model(dir.path / "large", 1e5f, 1e-3f, 0x1p58f);
  std::vector<std::string> devices{"cpu"};
  if (!list_vulkan_devices().empty()) devices.push_back("vulkan");
  for (const std::string& device : devices) {
    for (const Profile profile : {Profile::kInt8, Profile::kInt8Decode, Profile::kF32}) {
      if (profile != Profile::kInt8 && device != "cpu") continue;
      TestCloud cloud({(dir.path / "large").string()}, 64 << 20, {}, profile, {}, device);
      const http::Reply hidden =
          cloud.ask().post("/v1/models/large/forward", {{"tokens", {1}}, {"to", 1}});
      // The row of a new token, which is the one that overflows.
      const Json text = {{"model", "large"},
                         {"prompt", {2}},
                         {"max_tokens", 3},
                         {"ignore_eos", true},
                         {"logit_bias", {{"1", 100}}}};
      const http::Reply reply = cloud.ask().post("/v1/completions", text);
      if (profile == Profile::kInt8Decode) {
        EXPECT_EQ(hidden.status, 200) << hidden.body;
        expect_error(reply, 500, "overflow", "");
        continue;
      }
      if (profile == Profile::kF32) {
        EXPECT_EQ(hidden.status, 200) << device << hidden.body;
        EXPECT_EQ(reply.status, 200) << device << reply.body;
        continue;
      }
      expect_error(hidden, 500, "overflow", "");
      expect_error(reply, 500, "overflow", "");
      EXPECT_NE(reply.body.find("2^60"), std::string::npos) << reply.body;
    }
  }
}

// Weights in bf16 stay so where nobody asks for another format, on the way to edges too (T14).
TEST_F(CloudTexts, WeightsInBf16StayInBf16) {
  TestCloud cloud({path("qwen3")});
  const Json info = json_of(cloud.ask().get("/v1/models/qwen3"));
  EXPECT_EQ(info["format"], "bf16");
  EXPECT_EQ(info["bits"].get<std::string>().find(" f16"), std::string::npos) << info["bits"];
  for (const Json& stage : info["stages"]) {
    EXPECT_EQ(stage["format"], "bf16");
    const http::Reply file =
        cloud.ask().get(cat("/v1/models/qwen3/stages/", stage["name"].get<std::string>()));
    for (const auto& [name, view] : Safetensors::parse(as_bytes_of(file.body), "stage").tensors()) {
      EXPECT_EQ(view.dtype, DType::kBF16) << name;
    }
  }
}

// They are computed with as such too: a weight beyond f16 is itself (T14).
TEST_F(CloudTexts, WeightsInBf16AreTheirValues) {
  const TemporaryDir dir;
  const auto folder = dir.path / "large";
  std::filesystem::create_directory(folder);
  write_large_model(folder, 99840, 1);
  const std::string path = (folder / "model.safetensors").string();
  const std::string floats = read_file(path, 1 << 20);
  const Safetensors file = Safetensors::parse(as_bytes_of(floats), path);
  std::vector<OwnedTensor> halves;
  std::vector<NamedTensor> tensors;
  halves.reserve(file.tensors().size());
  for (const auto& [name, view] : file.tensors()) {
    tensors.push_back({name, halves.emplace_back(converted(view, DType::kBF16)).view});
  }
  write_file(path, as_bytes_of(write_safetensors(tensors)));
  TestCloud cloud({folder.string()});
  const Json hidden =
      json_of(cloud.ask().post("/v1/models/large/forward", {{"tokens", {1}}, {"to", 0}}))["hidden"];
  EXPECT_EQ(hidden[0][0], 99840);
}

// A decoder takes lists as well.
TEST_F(CloudTexts, ListsOfADecodersTextsAreThoseOfEachAlone) {
  TestCloud cloud({"rand-a"});
  const Golden golden("rand-a");
  const std::vector<std::vector<int32_t>> texts = {golden.ids(0), golden.ids(1)};
  const char* const path = "/v1/models/rand-a/forward";
  const Json all = json_of(cloud.ask().post(path, {{"tokens", texts}, {"rows", "last"}}));
  EXPECT_EQ(all["lengths"], Json::array({1, 1}));
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json one = json_of(cloud.ask().post(path, {{"tokens", texts[i]}}));
    EXPECT_EQ(one["logits"][0], all["logits"][i]);
  }
  const Json mean = json_of(cloud.ask().post("/v1/embeddings", {{"input", texts[0]}}));
  EXPECT_EQ(mean["data"].size(), 1u);
  const Json three =
      json_of(cloud.ask().post("/v1/embeddings", {{"input", texts[0]}, {"dimensions", 3}}));
  EXPECT_EQ(three["data"][0]["embedding"].size(), 3u);
  EXPECT_EQ(cloud.pages().in_use(), 0u);
}

}  // namespace
}  // namespace split::cloud
