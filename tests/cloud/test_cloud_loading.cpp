// Tests which checkpoints the cloud loads, and that it refuses others with one line.
#include <cstdlib>

#include "support/cloud_fixture.h"

namespace split::cloud {
namespace {

// A copy of a small model's directory with one tensor more.
void copy_with(const std::string& from, const std::filesystem::path& to, const std::string& name) {
  const MappedFile file(std::filesystem::path(from) / "model.safetensors");
  const float zero[2] = {0, 0};
  std::vector<NamedTensor> tensors{{name, {DType::kF32, {2}, std::as_bytes(std::span(zero))}}};
  const Safetensors parsed = Safetensors::parse(file.bytes(), from);
  for (const auto& [key, view] : parsed.tensors()) tensors.push_back({key, view});
  write_file(to / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
  write_file(to / "config.json", MappedFile(std::filesystem::path(from) / "config.json").bytes());
}

std::string loading_error(const std::filesystem::path& path) {
  ModelOptions options;
  options.id = path.filename().string();
  options.path = path;
  options.device = "cpu";
  options.threads = 1;
  options.kv_budget = 64 << 20;
  try {
    const ServedModel model(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "";
}

TEST(CloudLoading, RefusesTensorsThatGpt2DoesNotHave) {
  for (const char* name : {"transformer.h.0.attn.c_attn.lora_A.weight", "h.3.ln_1.weight",
                           "h.0.crossattention.c_attn.weight", "wte.lora_embedding_A", "ln_f.g"}) {
    const TemporaryDir dir;
    copy_with(model_dir("rand-a"), dir.path, name);
    const std::string shown = name[0] == 't' ? std::string(name).substr(12) : name;
    EXPECT_EQ(loading_error(dir.path),
              cat("[model] ", dir.path.string(), ": tensor '", shown,
                  "' is no part of a gpt2 of 3 blocks; adapters and changed architectures are not "
                  "supported"));
  }
  for (const char* name : {"score.weight", "lm_head.bias", "multiple_choice_head.summary.weight"}) {
    const TemporaryDir dir;
    copy_with(model_dir("rand-a"), dir.path, name);
    EXPECT_EQ(loading_error(dir.path), "") << name;
  }
}

// --- GGUF

// Names the files that a model's description lists.
std::vector<std::string> names_of(const Json& info) {
  std::vector<std::string> names;
  for (const Json& file : info["files"]) names.push_back(file["name"]);
  return names;
}

class CloudGguf : public testing::Test {
 protected:
  // `dir` as tests/support/make_gguf.py writes it.
  std::filesystem::path made(const std::string& dir, const std::string& name,
                             const std::string& options) {
    const std::filesystem::path out = folder.path / (name + ".gguf");
    const std::string command = cat("/usr/bin/python3 '", source("tests/support/make_gguf.py"),
                                    "' '", dir, "' '", out.string(), "' ", options);
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    return out;
  }
  // Every logit of a prompt, as bytes.
  static std::string logits(TestCloud& cloud, const std::string& model, const Json& tokens) {
    const http::Reply reply = cloud.ask().post_for_tensors(cat("/v1/models/", model, "/forward"),
                                                           {{"tokens", tokens}, {"rows", "all"}});
    EXPECT_EQ(reply.status, 200) << reply.body;
    return reply.body;
  }
  TemporaryDir folder;
};

void expect_same_tensors(const Checkpoint& got, const Checkpoint& expected, const Model& model,
                         const std::string& what) {
  for (const Blob& blob : model.blobs()) {
    for (const WeightDecl& decl : blob.weights) {
      // A tied head has a blob for its quantised formats; no checkpoint has its tensor.
      if (!decl.from.empty()) continue;
      const OwnedTensor a = converted(got.at(decl.name), DType::kF32);
      const OwnedTensor b = converted(expected.at(decl.name), DType::kF32);
      EXPECT_EQ(a.view.dims, b.view.dims) << what << decl.name;
      EXPECT_TRUE(a.storage == b.storage) << what << decl.name;
    }
  }
}

// Weights in another file are the same model: bit for bit where the type is the same.
TEST_F(CloudGguf, GivesTheLogitsOfTheSameWeights) {
  const Json tokens = {1, 5, 9, 2, 200, 17};
  for (const char* name : {"rand-a", "rand-b", "rand-c"}) {
    TestCloud original({name});
    const std::string expected = logits(original, name, tokens);
    int number = 0;
    for (const char* options : {"--type F32", "--type F32 --version 2", "--type F32 --tied-head",
                                "--type F32 --alignment 64"}) {
      const std::string id = cat(name, ".", number++);
      const auto file = made(model_dir(name), id, options);
      TestCloud cloud({file.string()});
      EXPECT_TRUE(logits(cloud, id + ".gguf", tokens) == expected) << name << options;
      expect_same_tensors(cloud.cloud.models[0]->checkpoint(),
                          original.cloud.models[0]->checkpoint(), original.cloud.models[0]->model(),
                          options);
    }
  }
}

// Norms one larger lose some bits.
TEST_F(CloudGguf, GivesTheLogitsOfFamiliesWithStatesAndTables) {
  for (const std::string arch : {"qwen35", "gemma4"}) {
    const std::string dir = folder.path / arch;
    ASSERT_EQ(std::system(cat("/usr/bin/python3 '", source("scripts/make_random_model.py"),
                              "' --size tiny --dtype f16 --arch ", arch, " --out '", dir, "'")
                              .c_str()),
              0);
    TestCloud original({dir});
    TestCloud cloud({made(dir, arch + "-f16", "--type F16").string()});
    const std::vector<int32_t> ids = {1, 5, 9, 2, 200, 17};
    const auto want = floats_of(logits(original, arch, ids), "logits");
    const auto got = floats_of(logits(cloud, arch + "-f16.gguf", ids), "logits");
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 1e-5) << arch;
  }
}

TEST_F(CloudGguf, KeepsAnUntiedHead) {
  const MappedFile file(std::filesystem::path(model_dir("rand-c")) / "model.safetensors");
  std::vector<NamedTensor> tensors;
  const Safetensors parsed = Safetensors::parse(file.bytes(), "rand-c");
  std::vector<float> head(300 * 48);
  for (size_t i = 0; i < head.size(); ++i) head[i] = static_cast<float>(i % 97) * 0.01f;
  for (const auto& [name, view] : parsed.tensors()) {
    tensors.push_back({name, name == "lm_head.weight" ? TensorView{DType::kF32, view.dims,
                                                                   std::as_bytes(std::span(head))}
                                                      : view});
  }
  Json config = Json::parse(read_file(model_dir("rand-c") + "/config.json", 1 << 20));
  config["tie_word_embeddings"] = false;
  const auto dir = folder.path / "untied";
  std::filesystem::create_directory(dir);
  write_file(dir / "model.safetensors", as_bytes_of(write_safetensors(tensors)));
  write_file(dir / "config.json", as_bytes_of(config.dump()));

  TestCloud original({dir.string()});
  TestCloud cloud({made(dir.string(), "u", "--type F32").string()});
  EXPECT_EQ(cloud.cloud.models[0]->model().weight("lm_head.weight").from, "");
  const std::string got = logits(cloud, "u.gguf", {1, 2, 3});
  EXPECT_TRUE(got == logits(original, "untied", {1, 2, 3}));
  TestCloud tied({"rand-c"});
  EXPECT_FALSE(got == logits(tied, "rand-c", {1, 2, 3}));
}

// Tokens that are only names are a vocabulary all the same.
TEST_F(CloudGguf, MadeUpTokensAreRead) {
  TestCloud cloud({made(model_dir("rand-c"), "named", "--type F16 --made-up-tokens").string()});
  const Tokenizer* const tokenizer = cloud.cloud.models[0]->tokenizer();
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->size(), 300);
  const std::string text = "t0, \u00e9 and\n";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST_F(CloudGguf, ADirectoryWithOneIsAModelToo) {
  made(model_dir("rand-a"), "a", "--type F16");
  TestCloud cloud({folder.path.string()});
  EXPECT_EQ(cloud.config().vocab, 311);
  EXPECT_EQ(cloud.config().end_of_text, 310);
  EXPECT_EQ(cloud.cloud.models[0]->tokenizer(), nullptr);
  EXPECT_EQ(names_of(json_of(cloud.ask().get(cat("/v1/models/", folder.path.filename().string())))),
            std::vector<std::string>{"config.json"});
  made(model_dir("rand-a"), "b", "--type F16");
  EXPECT_EQ(loading_error(folder.path), cat("[checkpoint] ", folder.path.string(),
                                            ": 2 GGUF files; name the one that is meant"));
}

TEST_F(CloudGguf, ReadsTheTokenizer) {
  const auto file = made(model_dir("demo"), "demo", "--type F16");
  TestCloud cloud({file.string(), "demo"});
  const Tokenizer& got = *cloud.cloud.models[0]->tokenizer();
  const Tokenizer& expected = *cloud.cloud.models[1]->tokenizer();
  EXPECT_EQ(got.size(), expected.size());
  EXPECT_EQ(got.end_of_text(), expected.end_of_text());
  const Json golden = Json::parse(read_file(source("tests/golden/tokenizer-demo.json"), 16 << 20));
  size_t checked = 0;
  for (const Json& string : golden["strings"]) {
    const std::string text = string["text"];
    EXPECT_EQ(got.encode(text), string["ids"].get<std::vector<int32_t>>()) << text;
    ++checked;
  }
  EXPECT_GT(checked, 100u);
  // The edge makes its own of what the cloud serves.
  const Json info = json_of(cloud.ask().get("/v1/models/demo.gguf"));
  EXPECT_EQ(names_of(info),
            (std::vector<std::string>{"config.json", "tokenizer.json", "tokenizer_config.json",
                                      "generation_config.json"}));
  const http::Reply served = cloud.ask().get("/v1/models/demo.gguf/files/tokenizer.json");
  ASSERT_EQ(served.status, 200);
  EXPECT_EQ(Tokenizer::from_tokenizer_json(served.body).encode("Once upon a time<|endoftext|>"),
            expected.encode("Once upon a time<|endoftext|>"));
  EXPECT_EQ(cloud.ask().get("/v1/models/demo.gguf/files/vocab.json").status, 404);
}

// F16 is the demo model's own type, and its text is PyTorch's. Of blocks: how far the logits of a
// prompt of the goldens are from those of the unrounded weights, measured 0.0046,
// 0.078 and 0.0084 (the writer of these tests rounds more simply than ggml).
TEST_F(CloudGguf, TextIsPyTorchsAndRoundingHasABound) {
  const Golden golden("demo");
  const std::vector<std::pair<const char*, double>> kinds = {
      {"F16", 0.0}, {"Q8_0", 0.008}, {"Q4_0", 0.12}, {"Q6_K", 0.015}};
  std::vector<std::string> models = {"demo"};
  for (const auto& [kind, bound] : kinds) {
    models.push_back(made(model_dir("demo"), kind, cat("--type ", kind)).string());
  }
  TestCloud cloud(models);
  const auto ids = golden.ids(0);
  const std::vector<float> expected = floats_of(logits(cloud, "demo", ids), "logits");
  for (const auto& [kind, bound] : kinds) {
    const auto got = floats_of(logits(cloud, cat(kind, ".gguf"), ids), "logits");
    ASSERT_EQ(got.size(), expected.size());
    const double distance = relative(got, expected);
    EXPECT_LE(distance, bound) << kind;
    EXPECT_GE(distance, bound / 4) << kind << ": the bound is loose";
  }
  const auto text = [&](const std::string& model) {
    return json_of(
               cloud.ask().post("/v1/completions", {{"model", model},
                                                    {"prompt", ids},
                                                    {"max_tokens", 24},
                                                    {"temperature", 0},
                                                    {"ignore_eos", true}}))["choices"][0]["text"]
        .get<std::string>();
  };
  const auto greedy = golden.values<int32_t>("p0.greedy_ids");
  const std::string pytorchs =
      cloud.cloud.models[0]->tokenizer()->decode(std::span(greedy).first(24));
  EXPECT_EQ(text("F16.gguf"), pytorchs);
}

}  // namespace
}  // namespace split::cloud
