// Encoders: what PyTorch and sentence-transformers compute for the goldens of each family, at every
// cut, alone and packed.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "device/drawn.h"
#include "io/write_safetensors.h"
#include "models/config_reader.h"
#include "run/sentences.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

Sentences sentences_of(const Golden& golden) {
  return Sentences::read(
      golden.checkpoint.files(),
      [&](const std::string& name) { return golden.checkpoint.file(name); },
      golden.model->config());
}

struct Loaded {
  Loaded(const std::string& name, const std::string& device_name, uint32_t max_rows = 512)
      : golden("models/" + name), device(make_device({device_name, 2})) {
    ShardOptions options = options_for(*golden.model);
    options.max_rows = max_rows;
    shard = std::make_unique<Shard>(*device, *golden.model, golden.weights(), options);
    batcher = std::make_unique<Batcher>(*shard);
  }

  int layers() const { return golden.model->config().layers; }
  size_t channels() const { return static_cast<size_t>(golden.model->config().channels); }

  // The rows of texts at a point, one text after the other, all of them in one call.
  std::vector<std::vector<float>> run(const std::vector<std::vector<int32_t>>& texts, Point to,
                                      const std::vector<uint32_t>& seconds = {}) {
    std::vector<SequenceRows> rows;
    for (const auto& ids : texts) {
      const uint32_t second = seconds.empty() ? 0 : seconds[rows.size()];
      rows.push_back({.range = {Point::tokens(), to},
                      .tokens = ids,
                      .wanted = Wanted::kAll,
                      .second = second});
    }
    return run(rows);
  }
  std::vector<std::vector<float>> run(const std::vector<std::vector<float>>& hidden,
                                      const StageRange& range) {
    std::vector<SequenceRows> rows;
    for (const auto& values : hidden) {
      rows.push_back({.range = range,
                      .hidden = values,
                      .width = static_cast<uint32_t>(channels()),
                      .wanted = Wanted::kAll});
    }
    return run(rows);
  }
  std::vector<std::vector<float>> run(const std::vector<SequenceRows>& rows) {
    std::vector<std::vector<float>> out;
    std::vector<Job> jobs;
    for (const SequenceRows& one : rows) {
      out.emplace_back(one.count() * channels());
      jobs.push_back({shard->pages().open(), one, out.back().data()});
    }
    batcher->run(jobs);
    for (const Job& job : jobs) shard->pages().close(job.sequence);
    return out;
  }

  Golden golden;
  std::unique_ptr<Device> device;
  std::unique_ptr<Shard> shard;
  std::unique_ptr<Batcher> batcher;
};

constexpr const char* kEncoders[] = {"bert",     "st-minilm",   "st-bge",      "st-labse",
                                     "xlmr",     "roberta",     "mpnet",       "modernbert",
                                     "embgemma", "rerank-bert", "rerank-xlmr", "rerank-modernbert"};

Json json_of(const Golden& golden) {
  return parse_json(read_file(golden.checkpoint.path() / "golden.json", 1 << 20), 16, "golden");
}

class Encoders : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  void SetUp() override {
    try {
      loaded_.emplace(std::get<0>(GetParam()), std::get<1>(GetParam()));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      GTEST_SKIP() << error.what();
    }
    for (int i = 0; golden().has(cat("p", i, ".ids")); ++i) {
      texts_.push_back(golden().ids(i));
      seconds_.push_back(0);
      if (!golden().has(cat("p", i, ".types"))) continue;
      const auto types = golden().values<int32_t>(cat("p", i, ".types"));
      seconds_.back() = static_cast<uint32_t>(std::ranges::find(types, 1) - types.begin());
    }
    const Json json = json_of(golden());
    for (const Json& prompt : json["prompts"]) errors_.push_back(prompt["float32_error"]);
  }
  // The rows of all texts at a point.
  std::vector<std::vector<float>> run(Point to) { return loaded_->run(texts_, to, seconds_); }
  // Ten times what float32 arithmetic is off by, or that of the first goldens.
  double bound(size_t text, const char* what) const {
    const Json* const error = errors_[text].find(what);
    return std::max(error == nullptr ? 2e-5 : error->get<double>(), 1e-7) * 10;
  }
  const Golden& golden() const { return loaded_->golden; }
  // Draws a quarter on a software GPU, another one for each model.
  Drawn drawn() const {
    const std::string name = std::get<0>(GetParam());
    return {*loaded_->device, 4, static_cast<unsigned>(std::hash<std::string>()(name))};
  }

  std::optional<Loaded> loaded_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<uint32_t> seconds_;  // the first token of each text's second part, or 0
  std::vector<Json> errors_;       // errors of the texts in float32
};

std::string device_name_of(const auto& info) {
  std::string name = cat(std::get<0>(info.param), "_", std::get<1>(info.param));
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Encoders,
                         testing::Combine(testing::ValuesIn(kEncoders),
                                          testing::Values("cpu", "vulkan")),
                         [](const auto& info) { return device_name_of(info); });

TEST_P(Encoders, StatesAreThoseOfPyTorchAtEveryPoint) {
  Drawn cuts = drawn();
  for (int k = 0; k <= loaded_->layers(); ++k) {
    if (!cuts.next() && k != loaded_->layers()) continue;
    const auto rows = run(k);
    for (size_t i = 0; i < texts_.size(); ++i) {
      const std::string name = cat("p", i, ".hidden_all");
      if (!golden().has(name)) continue;
      const auto all = golden().values<float>(name);
      const std::span want =
          std::span(all).subspan(static_cast<size_t>(k) * rows[i].size(), rows[i].size());
      const double most = bound(i, "hidden");
      for (size_t at = 0; at < want.size(); ++at) ASSERT_NEAR(rows[i][at], want[at], most) << name;
    }
  }
}

TEST_P(Encoders, PooledRowsAreThoseOfPyTorchBehindTheFinalNorm) {
  const ModelConfig& config = golden().model->config();
  const auto rows = run(Point::pooled(config.layers, config.has_norm()));
  for (size_t i = 0; i < texts_.size(); ++i) {
    const std::string name = cat("p", i, ".mean");
    const auto want = golden().values<float>(name), got = mean_row(rows[i], loaded_->channels());
    for (size_t at = 0; at < want.size(); ++at) {
      ASSERT_NEAR(got[at], want[at], bound(i, "mean")) << name;
    }
  }
}

// T18: of a text's bits nothing depends on its company, nor on where the model is cut.
TEST_P(Encoders, BitsAreTheSameAloneAndPackedAndAtEveryCut) {
  const ModelConfig& config = golden().model->config();
  const Point end = Point::pooled(config.layers, config.has_norm());
  const auto packed = run(end);
  Drawn some = drawn();
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (!some.next()) continue;
    EXPECT_EQ(loaded_->run({texts_[i]}, end, {seconds_[i]})[0], packed[i]) << i;
  }
  for (int k = 0; k <= loaded_->layers(); ++k) {
    if (!some.next()) continue;
    const auto below = run(k);
    EXPECT_EQ(loaded_->run(below, {k, end}), packed) << k;
  }
}

TEST_P(Encoders, KeepNothingOfATextAndNoPages) {
  loaded_->run(texts_, loaded_->layers());
  EXPECT_EQ(loaded_->shard->pages().in_use(), 0u);
  const auto cache = loaded_->shard->page_bytes();
  const auto width = static_cast<size_t>(golden().model->kv_width(0));
  EXPECT_EQ(cache, 2 * kPageTokens * width * sizeof(float)) << "one block's alone";
}

TEST_P(Encoders, EmbeddingsAreThoseOfSentenceTransformers) {
  const Sentences sentences = sentences_of(golden());
  const bool cpu = std::string(std::get<1>(GetParam())) == "cpu";
  size_t compared = 0;
  for (const char* kind :
       {"embedding", "embedding_query", "embedding_passage", "embedding_document"}) {
    for (int i = 0; golden().has(cat("p", i, ".", kind)); ++i, ++compared) {
      const std::string name = cat("p", i, ".", kind);
      const auto ids = golden().values<int32_t>(name + "_ids");
      const auto rows = loaded_->run({ids}, sentences.point())[0];
      const auto got = sentences.pool(rows, sentences.normalizes());
      const auto want = golden().values<float>(name);
      ASSERT_EQ(got.size(), want.size());
      ASSERT_EQ(got.size(), sentences.dimensions());
      // Scaled to length 1, or as long as it is.
      double length = 0;
      for (const float x : want) length += double{x} * double{x};
      const double bound = (cpu ? 1e-6 : 1e-5) * std::max(1.0, std::sqrt(length));
      for (size_t at = 0; at < want.size(); ++at) ASSERT_NEAR(got[at], want[at], bound) << name;
    }
  }
  const bool sentence_model = golden().has("p0.embedding");
  EXPECT_EQ(compared > 0, sentence_model);
}

// Embeddings that sentence-transformers makes, from the text on: of a decoder too, whose last token
// is pooled, the one that stands behind each text.
class SentenceModels : public testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(All, SentenceModels,
                         testing::Combine(testing::Values("st-minilm", "st-bge", "st-labse",
                                                          "st-qwen3", "xlmr", "mpnet", "modernbert",
                                                          "embgemma"),
                                          testing::Values("cpu", "vulkan")),
                         [](const auto& info) { return device_name_of(info); });

TEST_P(SentenceModels, TextsBecomeTheEmbeddingsOfSentenceTransformers) {
  const auto& [name, kind] = GetParam();
  std::optional<Loaded> loaded;
  try {
    loaded.emplace(name, kind);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    GTEST_SKIP() << error.what();
  }
  const Golden& golden = loaded->golden;
  const Sentences sentences = sentences_of(golden);
  const auto tokenizer = load_tokenizer(golden.checkpoint.path());
  const Json json = json_of(golden);
  size_t compared = 0;
  for (size_t i = 0; i < json["prompts"].size(); ++i) {
    for (const std::string what : {"", "query", "passage", "document"}) {
      const std::string of = cat("p", i, ".embedding", what.empty() ? "" : "_", what);
      if (!golden.has(of) || json["prompts"][i]["text"].is_null()) continue;
      ++compared;
      const std::string prompt =
          sentences.prompt(what.empty() ? std::nullopt : std::optional(what));
      const SentenceIds ids =
          sentences.encode(&*tokenizer, prompt + json["prompts"][i]["text"].text(), true);
      EXPECT_EQ(ids.ids, golden.values<int32_t>(of + "_ids")) << of;
      const auto rows = loaded->run({ids.ids}, sentences.point())[0];
      const auto got = sentences.pool(rows, sentences.normalizes());
      const auto want = golden.values<float>(of);
      ASSERT_EQ(got.size(), want.size());
      double length = 0;
      for (const float x : want) length += double{x} * double{x};
      const double bound =
          (kind == std::string("cpu") ? 1e-6 : 1e-5) * std::max(1.0, std::sqrt(length));
      for (size_t at = 0; at < want.size(); ++at) ASSERT_NEAR(got[at], want[at], bound) << of;
    }
  }
  EXPECT_GE(compared, 6u);
  if (!json.contains("strip_text")) return;
  // Spaces around a text are the tokenizer's to judge (T27).
  const SentenceIds spaced =
      sentences.encode(&*tokenizer, sentences.prompt({}) + json["strip_text"].text(), true);
  EXPECT_EQ(spaced.ids, golden.values<int32_t>("strip.embedding_ids"));
}

class PairModels : public testing::TestWithParam<std::tuple<const char*, const char*>> {};
INSTANTIATE_TEST_SUITE_P(All, PairModels,
                         testing::Combine(testing::Values("rerank-bert", "rerank-xlmr",
                                                          "rerank-modernbert"),
                                          testing::Values("cpu", "vulkan")),
                         [](const auto& info) { return device_name_of(info); });

TEST_P(PairModels, PairsHaveTheIdsTypesAndScoresOfSentenceTransformers) {
  const auto& [name, kind] = GetParam();
  std::optional<Loaded> loaded;
  try {
    loaded.emplace(name, kind);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    GTEST_SKIP() << error.what();
  }
  const Golden& golden = loaded->golden;
  const Sentences sentences = sentences_of(golden);
  EXPECT_TRUE(sentences.ranks());
  EXPECT_EQ(sentences.dimensions(), 1u);
  const auto tokenizer = load_tokenizer(golden.checkpoint.path());
  const Json prompts = json_of(golden)["prompts"];
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::string of = cat("p", i, ".");
    const SentenceIds pair =
        sentences.pair(*tokenizer, tokenizer->encode(prompts[i]["query"].text()),
                       tokenizer->encode(prompts[i]["text"].text()), true);
    EXPECT_EQ(pair.ids, golden.values<int32_t>(of + "ids")) << of;
    const auto types = golden.values<int32_t>(of + "types");
    for (size_t at = 0; at < types.size() && name == std::string("rerank-bert"); ++at) {
      EXPECT_EQ(types[at], at >= pair.second ? 1 : 0) << of << at;
    }
    const auto rows = loaded->run({pair.ids}, sentences.point(), {pair.second})[0];
    const auto score = sentences.pool(rows, sentences.normalizes());
    ASSERT_EQ(score.size(), 1u);
    EXPECT_NEAR(score[0], golden.values<float>(of + "score")[0], 1e-5) << of;
  }
}

// The shorter text keeps all that it may, as the library tokenizers cuts pairs.
TEST(PairModels, TheLongerTextIsCutFirst) {
  const Golden golden("models/rerank-xlmr");
  const Sentences sentences = sentences_of(golden);  // has 64 tokens at most, four of them added
  const auto tokenizer = load_tokenizer(golden.checkpoint.path());
  const auto lengths = [&](size_t query, size_t document) {
    const std::vector<int32_t> q(query, 10), d(document, 11);
    const SentenceIds pair = sentences.pair(*tokenizer, q, d, true);
    EXPECT_EQ(pair.truncated, query + document > 60);
    EXPECT_LE(pair.ids.size(), 64u);
    EXPECT_EQ(pair.ids.front(), 0);
    EXPECT_EQ(pair.ids.back(), 2);
    return std::pair(std::ranges::count(pair.ids, 10), std::ranges::count(pair.ids, 11));
  };
  EXPECT_EQ(lengths(20, 40), std::pair(20L, 40L));
  EXPECT_EQ(lengths(20, 90), std::pair(20L, 40L));
  EXPECT_EQ(lengths(50, 8), std::pair(50L, 8L));
  EXPECT_EQ(lengths(55, 20), std::pair(40L, 20L));
  EXPECT_EQ(lengths(45, 50), std::pair(30L, 30L));
  const std::vector<int32_t> longest(60, 10), one(1, 11);
  EXPECT_THROW(sentences.pair(*tokenizer, longest, one, true), Error) << "no room";
  const std::vector<int32_t> some(20, 10), many(41, 11);
  EXPECT_THROW(sentences.pair(*tokenizer, some, many, false), InputTooLong);
}

// Float64 arithmetic on the weights of a file as llama.cpp's converter writes it, and its pooling.
TEST(GgufBert, EmbeddingsAreThoseOfTheFilesWeights) {
  const GoldenValues golden("models/gguf");
  const Checkpoint checkpoint(source("tests/golden/models/gguf/bert-mean-f16.gguf"));
  const auto model = make_model(checkpoint.config_json());
  const Sentences sentences = Sentences::read(
      checkpoint.files(), [&](const std::string& name) { return checkpoint.file(name); },
      model->config());
  EXPECT_TRUE(sentences.normalizes());
  EXPECT_EQ(sentences.modes(), (std::vector{PoolMode::kMean}));
  const auto device = make_device({"cpu", 2});
  Shard shard(*device, *model, weights_of(checkpoint, *model), options_for(*model));
  Batcher batcher(shard);
  for (int p = 1; p <= 3; ++p) {
    const std::string prefix = cat("bert-mean-f16.p", p, ".");
    const auto ids = golden.values<int32_t>(prefix + "ids");
    const SequenceId id = shard.pages().open();
    const auto rows = append(
        batcher, id,
        {.range = {Point::tokens(), sentences.point()}, .tokens = ids, .wanted = Wanted::kAll});
    shard.pages().close(id);
    const auto got = sentences.pool(rows, true);
    const auto want = golden.values<float>(prefix + "embedding");
    for (size_t at = 0; at < want.size(); ++at) ASSERT_NEAR(got[at], want[at], 1e-6) << prefix;
  }
}

// T26: all rows of a text are in one step, however few a step was to have.
TEST(Encoder, AStepHasRoomForTheLongestText) {
  Loaded loaded("st-minilm", "cpu", 8);
  EXPECT_EQ(loaded.shard->options().max_rows, 48u);
  const std::vector<int32_t> longest(48, 7);
  const auto alone = loaded.run({longest}, 2)[0];
  const auto three = loaded.run({longest, {2, 3}, longest}, 2);
  EXPECT_EQ(three[0], alone);
  EXPECT_EQ(three[2], alone);
  const std::vector<int32_t> longer(49, 7);
  EXPECT_THROW(loaded.run({longer}, 2), Error);
}

// A decoder's text takes as many steps as it needs (T26).
TEST(Decoder, ATextLongerThanAStepIsCut) {
  Loaded whole("st-qwen3", "cpu"), few("st-qwen3", "cpu", 8);
  ASSERT_EQ(few.shard->options().max_rows, 8u);
  const std::vector<int32_t> text(30, 7);
  EXPECT_EQ(few.run({text}, 2), whole.run({text}, 2));
}

// More texts than a step holds, of several callers at once.
TEST(Encoder, ManyTextsTakeAsManyStepsAsTheyNeed) {
  Loaded loaded("st-minilm", "cpu", 64);
  std::vector<std::vector<int32_t>> texts;
  for (int i = 0; i < 60; ++i) {
    texts.emplace_back(static_cast<size_t>(1 + i % 17), 3 + i);
  }
  const auto all = loaded.run(texts, 2);
  std::vector<std::thread> callers;
  std::atomic<int> wrong = 0;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] { wrong += loaded.run(texts, 2) != all; });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, 0);
  for (size_t i = 0; i < texts.size(); i += 7) EXPECT_EQ(loaded.run({texts[i]}, 2)[0], all[i]);
}

// --- The files of sentence-transformers

struct Folder {
  std::map<std::string, std::string> files;
  Sentences read(int channels = 2) const {
    ModelConfig config;
    config.kind = ModelKind::kEncoder;
    config.channels = channels;
    config.context = 512;
    std::vector<std::string> names;
    for (const auto& [name, text] : files) names.push_back(name);
    return Sentences::read(
        names, [&](const std::string& name) { return files.at(name); }, config);
  }
};
std::string modules(const std::string& rest) {
  return R"([{"path":"","type":"a.Transformer"},{"path":"1_Pooling","type":"b.c.Pooling"})" + rest +
         "]";
}
std::string refusal(const Folder& folder) {
  try {
    folder.read();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

const std::vector<float> kRows = {1, 2, 3, 8, 2, -4};  // [3, 2]

// T16
TEST(Sentences, PoolsInEitherSpellingAndSeveralSideBySide) {
  const auto pooled = [](const std::string& config) {
    const Sentences sentences =
        Folder{{{"modules.json", modules("")}, {"1_Pooling/config.json", config}}}.read();
    EXPECT_FALSE(sentences.normalizes());
    return sentences.pool(kRows, false);
  };
  EXPECT_EQ(pooled(R"({"pooling_mode_mean_tokens":true})"), (std::vector<float>{2, 2}));
  EXPECT_EQ(pooled(R"({"pooling_mode":"mean"})"), (std::vector<float>{2, 2}));
  EXPECT_EQ(pooled(R"({"pooling_mode":"cls"})"), (std::vector<float>{1, 2}));
  EXPECT_EQ(pooled(R"({"pooling_mode":"lasttoken"})"), (std::vector<float>{2, -4}));
  EXPECT_EQ(pooled(R"({"pooling_mode":"weightedmean"})"), (std::vector<float>{13.0f / 6, 1}));
  EXPECT_EQ(pooled(R"({"pooling_mode_mean_tokens":true,"pooling_mode_max_tokens":true,
                       "pooling_mode_cls_token":true,"pooling_mode_lasttoken":false})"),
            (std::vector<float>{1, 2, 3, 8, 2, 2}));
  EXPECT_EQ(pooled(R"({"pooling_mode":["max","cls"],"embedding_dimension":2})"),
            (std::vector<float>{3, 8, 1, 2}));
}

TEST(Sentences, AnEncoderWithoutModulesHasTheMeanAtUnitLength) {
  const auto sentences = Folder{}.read();
  EXPECT_TRUE(sentences.normalizes());
  EXPECT_EQ(sentences.modes(), (std::vector{PoolMode::kMean}));
  const auto embedding = sentences.pool(kRows, true);
  EXPECT_FLOAT_EQ(embedding[0], std::sqrt(0.5f));
  EXPECT_EQ(sentences.max_tokens(), 512u);
}

TEST(Sentences, RefusesModulesThatItDoesNotKnowByName) {
  const std::string mean = R"({"pooling_mode":"mean"})";
  EXPECT_EQ(refusal({{{"modules.json", modules(R"(,{"path":"2_X","type":"a.LSTM"})")},
                      {"1_Pooling/config.json", mean}}}),
            "[modules.json] expected a Transformer, a Pooling, and any of Dense and Normalize, got "
            "'a.LSTM'");
  EXPECT_EQ(refusal({{{"modules.json", modules("")},
                      {"1_Pooling/config.json", R"({"pooling_mode":"attention"})"}}}),
            "[1_Pooling/config.json] pooling_mode: expected cls, max, mean, mean_sqrt_len_tokens, "
            "weightedmean or lasttoken, got 'attention'");
  EXPECT_EQ(refusal({{{"modules.json", modules("")},
                      {"1_Pooling/config.json", R"({"pooling_mode_mean_tokens":false})"}}}),
            "[1_Pooling/config.json] expected a pooling mode");
  EXPECT_EQ(
      refusal({{{"modules.json", modules("")},
                {"1_Pooling/config.json", R"({"pooling_mode":"mean","embedding_dimension":3})"}}}),
      "[1_Pooling/config.json] embedding_dimension: expected 2, the model's width");
  EXPECT_EQ(refusal({{{"modules.json", modules(R"(,{"path":"2_Dense","type":"a.Dense"})")},
                      {"1_Pooling/config.json", mean},
                      {"2_Dense/config.json", R"({"in_features":2,"out_features":1})"}}}),
            "[2_Dense/config.json] expected 2_Dense/model.safetensors beside it: a pickle is "
            "refused");
}

// The mean is the mode where a file does not say.
TEST(Sentences, PoolsTheMeanUnlessItIsToldNotTo) {
  const auto modes = [](const std::string& config) {
    return Folder{{{"modules.json", modules("")}, {"1_Pooling/config.json", config}}}
        .read()
        .modes();
  };
  EXPECT_EQ(modes(R"({"word_embedding_dimension":2})"), (std::vector{PoolMode::kMean}));
  EXPECT_EQ(modes(R"({"pooling_mode_cls_token":true})"),
            (std::vector{PoolMode::kCls, PoolMode::kMean}));
  EXPECT_EQ(modes(R"({"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false})"),
            (std::vector{PoolMode::kCls}));
  EXPECT_EQ(modes(R"({"pooling_mode_mean_sqrt_len_tokens":true,"pooling_mode_mean_tokens":false})"),
            (std::vector{PoolMode::kMeanSqrtLength}));
}

std::string file_of(const std::map<std::string, std::pair<Dims, std::vector<float>>>& tensors) {
  std::vector<NamedTensor> all;
  for (const auto& [name, tensor] : tensors) {
    all.push_back({name, {DType::kF32, tensor.first, std::as_bytes(std::span(tensor.second))}});
  }
  return write_safetensors(all);
}

const std::pair<std::string, std::function<double(double)>> kActivated[] = {
    {"torch.nn.modules.linear.Identity", [](double x) { return x; }},
    {"torch.nn.modules.activation.Tanh", [](double x) { return std::tanh(x); }},
    {"torch.nn.modules.activation.ReLU", [](double x) { return std::max(x, 0.0); }},
    {"torch.nn.modules.activation.SiLU", [](double x) { return x / (1 + std::exp(-x)); }},
    {"torch.nn.modules.activation.Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }},
    {"torch.nn.modules.activation.GELU",
     [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); }}};

TEST(Sentences, ADenseHasItsBiasAndItsActivation) {
  for (const auto& [name, activated] : kActivated) {
    for (const bool bias : {true, false}) {
      for (const bool unit : {true, false}) {
        const Json config = {
            {"in_features", 2}, {"out_features", 3}, {"bias", bias}, {"activation_function", name}};
        std::map<std::string, std::pair<Dims, std::vector<float>>> tensors = {
            {"linear.weight", {{3, 2}, {0.5f, -1, 2, 0.25f, -0.125f, 1}}}};
        if (bias) tensors["linear.bias"] = {{3}, {1, -4, 0.5f}};
        const std::string last = unit ? R"(,{"path":"3_N","type":"a.Normalize"})" : "";
        const Sentences sentences = Folder{
            {{"modules.json", modules(R"(,{"path":"2_D","type":"a.Dense"})" + last)},
             {"1_Pooling/config.json", R"({"pooling_mode":"cls"})"},
             {"2_D/config.json", config.dump()},
             {"2_D/model.safetensors",
              file_of(tensors)}}}.read();
        EXPECT_EQ(sentences.dimensions(), 3u);
        EXPECT_EQ(sentences.normalizes(), unit);
        const double sums[] = {-1.5, 2.5, 1.875}, more[] = {1, -4, 0.5};  // for the row 1, 2
        double want[3], length = 0;
        for (size_t i = 0; i < 3; ++i) {
          want[i] = activated(sums[i] + (bias ? more[i] : 0));
          length += want[i] * want[i];
        }
        const auto got = sentences.pool(kRows, unit);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_NEAR(got[i], unit ? want[i] / std::sqrt(length) : want[i], 1e-6) << name << bias;
        }
      }
    }
  }
}

// The head of each family, what its config.json says of it, and the name of before
// sentence-transformers 4.
TEST(Sentences, AClassifierIsAsItsFilesSay) {
  struct Head {
    Json config;
    std::map<std::string, std::pair<Dims, std::vector<float>>> tensors;
    double score = 0;
  };
  const std::pair<Dims, std::vector<float>> square = {{2, 2}, {0.5f, -1, 2, 0.25f}};
  const std::pair<Dims, std::vector<float>> row = {{1, 2}, {1.5f, -0.5f}}, two = {{2}, {0.5f, -1}},
                                            one = {{1}, {0.25f}};
  const Json old = {{"sbert_ce_default_activation_function", "torch.nn.modules.linear.Identity"}},
             newer = {{"sentence_transformers",
                       {{"activation_fn", "torch.nn.modules.linear.Identity"}, {"version", "4"}}}};
  // The row 1, 2 times the square is -1.5, 2.5; the mean 2, 2 is -1, 4.5.
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double first = std::tanh(-1.5 + 0.5) * 1.5 - std::tanh(2.5 - 1) * 0.5 + 0.25;
  const auto gelu = [](double x) { return x * 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  const auto modern = [&](double a, double b, double eps) {
    a = gelu(a), b = gelu(b);
    const double mean = (a + b) / 2, off = (a - b) / 2, scale = 1 / std::sqrt(off * off + eps);
    return 1.5 * (a - mean) * scale * 0.5 - 0.5 * (b - mean) * scale * -1 + 0.25;
  };
  const std::map<std::string, std::pair<Dims, std::vector<float>>> bert = {
      {"pooler.dense.weight", square},
      {"pooler.dense.bias", two},
      {"classifier.weight", row},
      {"classifier.bias", one}};
  const std::map<std::string, std::pair<Dims, std::vector<float>>> roberta = {
      {"classifier.dense.weight", square},
      {"classifier.dense.bias", two},
      {"classifier.out_proj.weight", row},
      {"classifier.out_proj.bias", one}};
  std::map<std::string, std::pair<Dims, std::vector<float>>> bare = {{"head.dense.weight", square},
                                                                     {"head.norm.weight", two},
                                                                     {"classifier.weight", row},
                                                                     {"classifier.bias", one}};
  auto biased = bare;  // by classifier_bias
  biased["head.dense.bias"] = two;
  const Json mean = {{"classifier_pooling", "mean"}, {"norm_eps", 0.5}};
  const Head heads[] = {{Json::object(), bert, sigmoid(first)},
                        {old, bert, first},
                        {newer, bert, first},
                        {Json::object(), roberta, sigmoid(first)},
                        {old, roberta, first},
                        {Json::object(), bare, sigmoid(modern(-1.5, 2.5, 1e-5))},
                        {mean, bare, sigmoid(modern(-1, 4.5, 0.5))},
                        {Json::object(), biased, sigmoid(modern(-1.5 + 0.5, 2.5 - 1, 1e-5))}};
  for (const Head& head : heads) {
    const Folder folder{{{"config.json", head.config.dump()},
                         {std::string(kClassifierFile), file_of(head.tensors)}}};
    ModelConfig config;
    config.kind = ModelKind::kEncoder;
    config.channels = 2;
    config.context = 512;
    config.ranks = true;
    const std::vector<std::string> names = {"config.json", std::string(kClassifierFile)};
    const Sentences sentences = Sentences::read(
        names, [&](const std::string& name) { return folder.files.at(name); }, config);
    const auto got = sentences.pool(kRows, sentences.normalizes());
    ASSERT_EQ(got.size(), 1u);
    EXPECT_NEAR(got[0], head.score, 1e-6) << head.config.dump();
  }
}

TEST(Sentences, RefusesTextsInSmallLettersByName) {
  EXPECT_EQ(
      refusal({{{"sentence_bert_config.json", R"({"max_seq_length":24,"do_lower_case":true})"}}}),
      "[sentence_bert_config.json] do_lower_case: expected false: the tokenizer alone changes "
      "a text");
}

// T17
TEST(Sentences, LengthIsThatOfSentenceTransformersElseOfTheTokenizerWithinThePositions) {
  const auto most = [](Folder folder) { return folder.read().max_tokens(); };
  EXPECT_EQ(most({{{"sentence_bert_config.json", R"({"max_seq_length":24})"},
                   {"tokenizer_config.json", R"({"model_max_length":48})"}}}),
            24u);
  EXPECT_EQ(most({{{"sentence_bert_config.json", R"({"max_seq_length":null})"},
                   {"tokenizer_config.json", R"({"model_max_length":48})"}}}),
            48u);
  EXPECT_EQ(most({{{"tokenizer_config.json", R"({"model_max_length":1e30})"}}}), 512u);
  EXPECT_EQ(most({{{"sentence_bert_config.json", R"({"max_seq_length":9999})"}}}), 512u);
  const auto sentences = Folder{{{"tokenizer_config.json", R"({"model_max_length":4})"}}}.read();
  const SentenceIds cut = sentences.bounded({1, 2, 3, 4, 5, 6}, true);
  EXPECT_EQ(cut.ids, (std::vector<int32_t>{1, 2, 3, 6})) << "the closing token stays";
  EXPECT_TRUE(cut.truncated);
  EXPECT_FALSE(sentences.bounded({1, 2, 3, 4}, false).truncated);
  try {
    sentences.bounded({1, 2, 3, 4, 5}, false);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "expected at most 4 tokens, got 5");
  }
}

TEST(Sentences, KnowsThePromptsOfAModel) {
  const Folder folder{{{"config_sentence_transformers.json",
                        R"({"prompts":{"query":"Q: ","document":""},
                            "default_prompt_name":"query"})"}}};
  const auto sentences = folder.read();
  EXPECT_EQ(sentences.prompt({}), "Q: ");
  EXPECT_EQ(sentences.prompt("document"), "");
  try {
    sentences.prompt("title");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "expected one of document, query, got 'title'");
    EXPECT_EQ(error.field(), "prompt_name");
  }
}

// T15, T19: names of BERT with and without a prefix, gamma and beta, what is beside the encoder.
TEST(Bert, ReadsItsSettings) {
  const auto make = [](const std::string& more) {
    return make_model(cat(
        R"({"model_type":"bert","num_hidden_layers":1,"hidden_size":8,"num_attention_heads":2,)",
        R"("vocab_size":8,"max_position_embeddings":8,)", more, "}"));
  };
  EXPECT_TRUE(make(R"("hidden_act":"gelu")")->config().encodes());
  for (const char* wrong : {R"("hidden_act":"mish")", R"("position_embedding_type":"relative_key")",
                            R"("is_decoder":true)", R"("add_cross_attention":true)"}) {
    EXPECT_THROW(make(wrong), Error) << wrong;
  }
  const auto op_of = [](std::string_view name) {
    return std::ranges::find(activations(), name, &Activation::name)->op;
  };
  EXPECT_EQ(op_of("gelu"), Op::k_gelu) << "by erf";
  EXPECT_EQ(op_of("gelu_new"), Op::k_gelu_new) << "by tanh";
  EXPECT_EQ(op_of("gelu_pytorch_tanh"), Op::k_gelu_new);
}

// Settings that are wrong are named in one line.
TEST(EncoderSettings, AreRefusedByName) {
  const auto refusal = [](const std::string& golden, const Json& change) {
    Json config =
        parse_json(read_file(model_dir("models/" + golden) + "/config.json", 1 << 20), 16, golden);
    for (const auto& [name, value] : change.members()) config[name] = value;
    try {
      make_model(config.dump());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kInput);
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refusal("mpnet", {{"relative_attention_num_buckets", 64}}),
            "[config.json] relative_attention_num_buckets: expected 32, got 64");
  EXPECT_EQ(refusal("xlmr", {{"max_position_embeddings", 2}}),
            "[config.json] max_position_embeddings: expected more than 2, got 2");
  EXPECT_EQ(refusal("rerank-xlmr", {{"id2label", {{"0", "a"}, {"1", "b"}}}}),
            "[config.json] num_labels: expected 1, a score, got 2");
  EXPECT_EQ(refusal("rerank-modernbert", {{"id2label", Json()}}),
            "[config.json] num_labels: expected 1, a score, got 2");
  EXPECT_EQ(refusal("modernbert", {{"local_attention", 0}}),
            "[config.json] local_attention: expected a whole number in 1..1073741824, got 0");
  EXPECT_EQ(refusal("modernbert", {{"layer_types", Json::array({"full_attention"})}}),
            "[config.json] layer_types: expected a list of 5");
  EXPECT_EQ(refusal("modernbert", {{"norm_bias", true}}),
            "[config.json] norm_bias: expected false: a ModernBERT has none");
  EXPECT_EQ(refusal("modernbert", {{"num_attention_heads", 16}}),
            "[config.json] head_dim: expected pairs of channels, got 3");
  EXPECT_EQ(refusal("embgemma", {{"sliding_window", 0}}),
            "[config.json] sliding_window: expected a whole number in 1..1073741824, got 0");
  EXPECT_EQ(refusal("qwen3", {{"use_bidirectional_attention", true}}),
            "[config.json] use_bidirectional_attention: expected false: rows see those before "
            "them");
}

TEST(Bert, IgnoresWhatStandsOnTheEncoder) {
  const TensorNames names = tensor_names(R"({"model_type":"bert"})");
  EXPECT_EQ(names.name_of("bert.embeddings.LayerNorm.gamma"), "embeddings.LayerNorm.weight");
  EXPECT_EQ(names.name_of("embeddings.LayerNorm.bias"), "embeddings.LayerNorm.bias");
  for (const char* name : {"cls.predictions.bias", "pooler.dense.weight", "embeddings.position_ids",
                           "classifier.weight"}) {
    EXPECT_TRUE(names.ignored(name)) << name;
  }
  EXPECT_FALSE(names.ignored("encoder.layer.0.output.dense.weight"));
}

}  // namespace
}  // namespace split::test
