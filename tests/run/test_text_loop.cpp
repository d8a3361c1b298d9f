// A text whose rows come from wherever somebody feeds them: its loop alone, without a Forward.
#include <gtest/gtest.h>

#include "run/text/generate.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

class TextLoopOf : public testing::Test {
 protected:
  static GenerateOptions wanted() {
    GenerateOptions options;
    options.max_tokens = 12;
    options.sampling.seed = 3;
    options.sampling.repetition_penalty = 1.2f;
    options.ignore_end = true;
    return options;
  }
  const ModelConfig& config() const { return golden.model->config(); }
  Generated whole(const GenerateOptions& options) {
    LocalForward forward(batcher);
    return generate(forward, config(), nullptr, prompt, options, {});
  }

  const Golden golden{"rand-a"};
  const std::vector<int32_t> prompt{5, 11, 2, 40, 33, 17};
  const std::unique_ptr<Device> device = make_cpu_device(1);
  Shard shard{*device, *golden.model, golden.weights(), options_for(*golden.model)};
  Batcher batcher{shard};
};

// Every other token comes from a source that has no logits, as a stream of somebody's.
TEST_F(TextLoopOf, TwoSourcesInTurnIsThatOfOne) {
  const std::vector<int32_t> expected = whole(wanted()).tokens;
  TextLoop loop(config(), nullptr, prompt, wanted());
  LocalForward forward(batcher);
  uint32_t computed = 0;  // rows
  std::vector<int32_t> ids(prompt);
  for (size_t n = 0; !loop.ended(); ++n) {
    const SequenceRows rows = loop.wanted();
    EXPECT_EQ(rows.past + rows.count(), ids.size());
    EXPECT_EQ(rows.phase, n == 0 ? Phase::kPrompt : Phase::kGenerate);
    if (n % 2 == 1) {
      loop.token({expected[n], 0, {}}, {});
    } else {
      SequenceRows all = rows;  // with those that the other source kept to itself
      all.past = computed;
      all.tokens = std::span(ids).subspan(computed);
      loop.logits(forward.run(all), {});
      computed = static_cast<uint32_t>(ids.size());
    }
    ids.push_back(expected[n]);
  }
  const Generated text = loop.take();
  EXPECT_EQ(text.tokens, expected);
  EXPECT_EQ(text.finish_reason, FinishReason::kLength);
}

TEST_F(TextLoopOf, ThatEndsWantsNothingMore) {
  GenerateOptions options = wanted();
  options.max_tokens = 0;
  EXPECT_TRUE(TextLoop(config(), nullptr, prompt, options).ended());
  options = wanted();
  TextLoop stopped(config(), nullptr, prompt, options);
  stopped.token({7, 0, {}}, [](std::string_view, const ScoredToken*) { return false; });
  EXPECT_TRUE(stopped.ended());
  EXPECT_EQ(stopped.take().finish_reason, FinishReason::kCancelled);
  options.ignore_end = false;
  TextLoop at_end(config(), nullptr, prompt, options);
  at_end.token({config().end_of_text, 0, {}}, {});
  EXPECT_TRUE(at_end.ended());
  const Generated text = at_end.take();
  EXPECT_EQ(text.finish_reason, FinishReason::kStop);
  EXPECT_TRUE(text.tokens.empty());
}

TEST_F(TextLoopOf, AScoredPromptComesInPieces) {
  GenerateOptions options = wanted();
  options.logprobs = 2;
  options.score_prompt = true;
  const Generated expected = whole(options);
  ASSERT_EQ(expected.scored_prompt.size(), prompt.size() - 1);
  std::vector<int32_t> two(kScoreRows + 5, 9);
  TextLoop loop(config(), nullptr, two, options);
  LocalForward forward(batcher);
  EXPECT_EQ(loop.wanted().count(), kScoreRows);
  loop.logits(forward.run(loop.wanted()), {});
  EXPECT_EQ(loop.wanted().past, kScoreRows);
  EXPECT_EQ(loop.wanted().count(), 5u);
  loop.logits(forward.run(loop.wanted()), {});
  EXPECT_EQ(loop.wanted().count(), 1u);
  EXPECT_EQ(loop.wanted().phase, Phase::kGenerate);
  const Generated text = loop.take();
  EXPECT_EQ(text.scored_prompt.size(), two.size() - 1);
  EXPECT_EQ(text.tokens.size(), 1u);
}

// However many choices there are.
TEST(TextLoopOptions, ShareWhatIsLarge) {
  GenerateOptions options;
  options.stop = {"night owl"};
  options.sampling.logit_bias = {{1, 2}, {3, 4}};
  const GenerateOptions copy = options;
  EXPECT_EQ(&copy.stop[0], &options.stop[0]);
  EXPECT_EQ(&copy.sampling.logit_bias[1], &options.sampling.logit_bias[1]);
}

// A text that was begun elsewhere: what its words were is known, and told no second time.
TEST(TextLoopBegun, GoesOnWithinACharacterAndAStopString) {
  const Golden demo("demo");
  const auto tokenizer = load_tokenizer(
      demo.checkpoint.files(), [&](const char* file) { return demo.checkpoint.file(file); }, "");
  ASSERT_TRUE(tokenizer);
  GenerateOptions options;
  options.stop = {"night owl"};
  const std::vector<int32_t> begin = tokenizer->encode("Once"),
                             more = tokenizer->encode(" \u65e5 in the night owls");
  ASSERT_GT(more.size(), 6u);
  for (size_t given = 0; given < more.size(); ++given) {
    std::vector<int32_t> prompt(begin);
    prompt.insert(prompt.end(), more.begin(), more.begin() + static_cast<ptrdiff_t>(given));
    std::string before, text;
    options.generated = 0;
    TextLoop whole(demo.model->config(), &*tokenizer, begin, options);
    options.generated = given;
    TextLoop loop(demo.model->config(), &*tokenizer, prompt, options);
    for (size_t i = 0; i < more.size() && !whole.ended(); ++i) {
      whole.token({more[i], 0, {}}, [&](std::string_view part, const ScoredToken*) {
        (i < given ? before : text) += part;
        return true;
      });
    }
    std::string got;
    for (size_t i = given; i < more.size() && !loop.ended(); ++i) {
      loop.token({more[i], 0, {}}, [&](std::string_view part, const ScoredToken*) {
        got += part;
        return true;
      });
    }
    EXPECT_EQ(got, text) << given;
    EXPECT_EQ(before + got, " \u65e5 in the ") << given;
    EXPECT_EQ(loop.take().finish_reason, FinishReason::kStop) << given;
  }
}

// Any id that a model's files name ends a text, and no special token is written (T7).
TEST(TextLoopStops, AreAllThatTheModelNames) {
  const std::string source = SPLIT_SOURCE_DIR "/tests/golden/models/tokenizers/bpe-llama3";
  const std::optional<Tokenizer> tokenizer = load_tokenizer(source);
  ASSERT_TRUE(tokenizer);
  ModelConfig config;
  config.vocab = tokenizer->size() + 10;  // rows without a token
  config.context = 64;
  config.end_of_text = *tokenizer->added_id("<|end_of_text|>");
  config.stops = {config.end_of_text, *tokenizer->added_id("<|eom_id|>"),
                  *tokenizer->added_id("<|eot_id|>")};
  const std::vector<int32_t> prompt = prompt_ids(config, &*tokenizer, "Once");
  EXPECT_EQ(prompt[0], *tokenizer->added_id("<|begin_of_text|>"));
  const std::vector<int32_t> words = tokenizer->encode(" upon a time");
  for (const int stop : config.stops) {
    TextLoop loop(config, &*tokenizer, prompt, {});
    for (const int32_t id : words) loop.token({id, 0, {}}, {});
    loop.token({*tokenizer->added_id("<|python_tag|>"), 0, {}}, {});
    loop.token({config.vocab - 1, 0, {}}, {});
    EXPECT_FALSE(loop.ended());
    loop.token({stop, 0, {}}, {});
    EXPECT_TRUE(loop.ended());
    const Generated text = loop.take();
    EXPECT_EQ(text.text, " upon a time");
    EXPECT_EQ(text.finish_reason, FinishReason::kStop);
  }
}

TEST(Prompt, ThatIsTooLongIsToldBothNumbersAndTheFlag) {
  ModelConfig config;
  config.vocab = 8;
  config.context = 4;
  std::vector<int32_t> ids(5, 1);
  try {
    check_prompt(config, ids);
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[prompt] expected at most 4 tokens, got 5: --context bounds it");
    EXPECT_EQ(error.field(), "prompt");
  }
}

}  // namespace
}  // namespace split::test
