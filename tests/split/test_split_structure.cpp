// Texts with a form (calls of tools that may or must come, words of a schema) whose cut moves by
// any schedule, beside faults: each is the text that the whole model makes in one place.
#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "split/split_moves.h"
#include "wire/codes.h"

namespace split::test {
namespace {

// All bytes, and pairs of letters, up to a vocabulary.
Tokenizer small_tokenizer(int vocab) {
  std::vector<std::string> letters;
  for (int byte = 0, high = 256; byte < 256; ++byte) {
    const bool plain = (byte > 32 && byte < 127) || (byte > 160 && byte != 173);
    const int point = plain ? byte : high++;
    letters.push_back(point < 128 ? std::string(1, static_cast<char>(point))
                                  : std::string{static_cast<char>(0xc0 | point >> 6),
                                                static_cast<char>(0x80 | (point & 63))});
  }
  nlohmann::json ids;
  std::string merges;
  for (size_t byte = 0; byte < 256; ++byte) ids[letters[byte]] = byte;
  for (int id = 256; id < vocab - 1; ++id) {
    const std::string first = letters['a' + (id - 256) % 26],
                      second = letters['a' + (id - 256) / 26];
    ids[first + second] = id;
    merges += cat(first, " ", second, "\n");
  }
  ids["<|endoftext|>"] = vocab - 1;
  return Tokenizer::from_vocab_merges(ids.dump(), merges);
}

class SplitStructure : public SplitMoves {
 protected:
  using SplitMoves::SplitMoves;
  struct Told {
    std::string words, thought;
    std::vector<std::pair<std::string, std::string>> calls;
    bool operator==(const Told&) const = default;

    OnText on_text() {
      return [this](const TextPiece& piece, const ScoredToken*) {
        if (piece.part == TextPiece::kWords) words += piece.bytes;
        if (piece.part == TextPiece::kThought) thought += piece.bytes;
        if (piece.part == TextPiece::kName) calls.emplace_back(piece.bytes, "");
        if (piece.part == TextPiece::kArguments) calls.at(piece.call).second += piece.bytes;
        return true;
      };
    }
  };
  // A schema of the words, calls that must come, calls that may, or calls whose arguments are
  // tagged.
  std::shared_ptr<const TextForm> form(size_t kind) {
    AnswerForm form;
    form.format.calls = AnswerFormat::Calls::kJson;
    form.format.opens = "<";
    form.format.middle = " ";
    form.format.closes = ">";
    const std::string schema =
        R"({"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":99},)"
        R"("s":{"type":"string"}},"required":["n","s"]})";
    if (kind == 0) form.schema = schema;
    if (kind > 0) form.tools = {{"a", schema}, {"look", ""}};
    if (kind == 1) form.choice = AnswerForm::Choice::kRequired;
    if (kind == 3) {
      form.choice = AnswerForm::Choice::kRequired;
      form.format.calls = AnswerFormat::Calls::kTagged;
      form.format.middle = ")";
      form.format.argument = {"(", "<;>"};
      form.format.argument_middle = "=";
    }
    if (kind == 2) form.choice = AnswerForm::Choice::kAuto;
    return std::make_shared<TextForm>(form, words);
  }

  // So many texts whose forms, moves and faults are random, of which a quarter may lose their cloud
  // for good.
  void any(int count);

  const Tokenizer words = small_tokenizer(static_cast<int>(golden.model->config().vocab));
};

void SplitStructure::any(int count) {
  tokenizer = cloud.tokenizer = &words;
  const std::array forms = {form(0), form(1), form(2), form(3)};
  const int32_t opens = words.encode("<").at(0);
  std::minstd_rand random(11);
  const bool has_states = cloud.batcher().pages().states() > 0;
  size_t moved = 0, calls = 0, faults = 0, masked = 0, rescued = 0;
  Schedule schedule;
  for (int n = 0; n < count; ++n) {
    SCOPED_TRACE(n);
    GenerateOptions options = wanted();
    options.max_tokens = 30;
    options.sampling.seed = static_cast<uint64_t>(n);
    options.ignore_end = false;
    options.logprobs = n % 2 == 0 ? 2 : -1;
    options.form = forms.at(random() % forms.size());
    if (options.form == forms[2]) options.sampling.logit_bias = {{opens, 6}};
    if (random() % 2 == 0) options.drafts = {.most = kMostDrafts, .always = true};
    // Three texts of one request: each is its seed's.
    if (n % 3 == 0) {
      schedule = Schedule::random(random, layers(), options.max_tokens);
      schedule.asked = random() % 3 == 0;
      prompt.resize(1 + random() % 20);
      for (int32_t& id : prompt) id = static_cast<int32_t>(random() % 256);
    }
    Told expected, told;
    const Generated whole = [&] {
      LocalForward forward(cloud.batcher());
      return generate(forward, golden.model->config(), &words, prompt, options, expected.on_text());
    }();
    on_text = told.on_text();
    ends_lost = false;
    cloud.leaves_snapshots = n % 3 != 0;
    leaves_lost_cloud = n % 4 == 1;
    bool lost = false;
    cloud.before_call = [&](int) {
      lost = lost || (leaves_lost_cloud && random() % 12 == 0);
      ends_lost = ends_lost || lost;
      if (lost) throw RemoteError("no answer", 0, "");
      if (random() % 15 != 0) return;
      ++faults;
      switch (random() % (has_states ? 6 : 4)) {
        case 4:
          return evict_snapshots(*tail_pages, layers(), random() % 3);
        case 5:
          return evict_snapshots(cloud.batcher().shard().pages(), layers(), random() % 3);
        case 0:
          throw RemoteError("busy", 503, wire::codes::kBusy);
        case 1:
          ends_lost = true;
          throw RemoteError("no answer", 0, "");
        case 2:
          return cloud.forget_all();
        default:
          tail_pages->forget();
      }
    };
    const Result got = run(schedule, options, static_cast<unsigned>(n));
    cloud.before_call = {};
    EXPECT_EQ(told, expected);
    EXPECT_EQ(got.made.tokens, whole.tokens);
    EXPECT_EQ(got.made.text, whole.text);
    EXPECT_EQ(got.made.calls, whole.calls);
    EXPECT_EQ(got.made.finish_reason, whole.finish_reason);
    ASSERT_EQ(got.made.scored.size(), whole.scored.size());
    for (size_t i = 0; i < whole.scored.size(); ++i) {
      EXPECT_EQ(got.made.scored[i].logprob, whole.scored[i].logprob);
    }
    moved += got.moves.size();
    rescued +=
        static_cast<size_t>(std::ranges::count(got.moves, edge::Why::kCloudLost, &edge::Move::why));
    calls += told.calls.size();
    masked += options.form == forms[0] ? 1 : 0;
    ASSERT_FALSE(HasFailure());
  }
  EXPECT_GT(moved, static_cast<size_t>(count));
  EXPECT_GT(calls, static_cast<size_t>(count) / 4);
  EXPECT_GT(faults, static_cast<size_t>(count) / 4);
  EXPECT_GT(masked, 0u);
  EXPECT_GT(rescued, static_cast<size_t>(count) / 20);
}

class SplitStructureOf : public SplitStructure, public testing::WithParamInterface<const char*> {
 protected:
  SplitStructureOf() : SplitStructure(GetParam()) {}
};

TEST_P(SplitStructureOf, SurvivesAnyScheduleAndFault) {
  const bool family = std::string_view(GetParam()).starts_with("models/");
  any(schedules() == 1000 ? (family ? 300 : 1000) : family ? 30 : 60);
}

INSTANTIATE_TEST_SUITE_P(Models, SplitStructureOf,
                         testing::Values("rand-a", "models/qwen35", "models/gemma4"));

class SplitStructureAcross : public SplitStructure, public testing::WithParamInterface<bool> {
 protected:
  SplitStructureAcross() : SplitStructure("rand-a", Sides{GetParam()}, Profile::kInt8) {}
  void SetUp() override {
    if (!why_not_vulkan.empty()) GTEST_SKIP() << why_not_vulkan;
  }
};

TEST_P(SplitStructureAcross, SurvivesAnyScheduleAndFault) { any(schedules() == 1000 ? 500 : 12); }

INSTANTIATE_TEST_SUITE_P(VulkanIsTheEdge, SplitStructureAcross, testing::Bool());

}  // namespace
}  // namespace split::test
