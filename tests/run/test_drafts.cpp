// Drafts: what they guess, how many of them pay, and that a text is the same with them.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "base/file.h"
#include "run/text/drafts.h"
#include "run/text/generate.h"
#include "support/golden_model.h"
#include "text/sampler.h"

namespace split {
namespace {

using test::Golden;
using Ids = std::vector<int32_t>;

Ids list(std::span<const int32_t> ids) { return {ids.begin(), ids.end()}; }

// --- Guesses

TEST(DraftText, KnowsWhatFollowedTheLongestSuffixLast) {
  DraftText text;
  for (const int32_t id : {1, 2, 3, 9, 2, 3, 4, 5, 3}) text.push(id);
  EXPECT_EQ(text.after(Ids{1, 2, 3}, 3), 9);
  EXPECT_EQ(text.after(Ids{1, 2, 3}, 2), 4);  // the later 2, 3
  EXPECT_EQ(text.after(Ids{9, 2, 3, 4}, 4), 5);
  EXPECT_EQ(text.after(Ids{5, 3}, 2), -1);  // nothing has followed the end
  EXPECT_EQ(text.after(Ids{5, 3}, 1), 4);
  EXPECT_EQ(text.after(Ids{7}, 1), -1);
}

TEST(Drafts, GoOnAsTheTextDidAfterItsLastIds) {
  Drafts drafts(Ids{1, 2, 3, 4, 5, 6, 7, 8, 1, 2});
  EXPECT_EQ(list(drafts.next({}, nullptr)), (Ids{3, 4, 5, 6, 7, 8, 1}));
  EXPECT_EQ(list(drafts.next({.most = 2}, nullptr)), (Ids{3, 4}));
  drafts.took(Ids{3, 9});
  EXPECT_TRUE(drafts.next({}, nullptr).empty());  // 9 is new
  drafts.took(Ids{3});
  EXPECT_EQ(list(drafts.next({.most = 1}, nullptr)), (Ids{9}));  // as it did last
}

TEST(Drafts, LookIntoTheLastTextsWhereTheirOwnSaysNothing) {
  DraftMemory memory;
  { const Drafts first(Ids{5, 6, 7}, &memory); }
  {
    Drafts second(Ids{6}, &memory);
    EXPECT_EQ(list(second.next({}, nullptr)), (Ids{7}));
    second.took(Ids{9});
  }
  Drafts third(Ids{5, 6}, &memory);
  EXPECT_EQ(list(third.next({}, nullptr)), (Ids{9}));  // the latest comes first
  // The oldest makes room.
  for (int i = 0; i < 20; ++i) memory.keep(Ids{100 + i, 200 + i}, DraftRecord());
  EXPECT_EQ(memory.texts().size(), DraftMemory::kTexts);
  EXPECT_TRUE(Drafts(Ids{100}, &memory).next({}, nullptr).empty());
  EXPECT_EQ(list(Drafts(Ids{119}, &memory).next({}, nullptr)), (Ids{219}));
  // A long text leaves its last ids.
  Ids lengthy(DraftMemory::kMostIds + 10);
  for (size_t i = 0; i < lengthy.size(); ++i) lengthy[i] = static_cast<int32_t>(i);
  memory.keep(lengthy, DraftRecord());
  EXPECT_EQ(memory.texts()[0]->ids().size(), DraftMemory::kMostIds);
  EXPECT_EQ(memory.texts()[0]->ids().back(), lengthy.back());
}

// --- How many

TEST(DraftRecord, WeighsOlderGuessesLess) {
  DraftRecord record;
  EXPECT_DOUBLE_EQ(record.chance(4, 0), 0.8);
  record.add(4, 0, true);
  EXPECT_DOUBLE_EQ(record.chance(4, 0), 0.85);
  EXPECT_DOUBLE_EQ(record.chance(3, 0), 0.8);
  EXPECT_DOUBLE_EQ(record.chance(4, 1), 0.85);  // as the place before it
  record.add(4, 0, false);
  EXPECT_DOUBLE_EQ(record.chance(4, 0), (0.95 + 2.4) / (1.95 + 3));
  EXPECT_DOUBLE_EQ(DraftRecord(true).chance(4, 0), 0.1);
  for (int i = 0; i < 200; ++i) record.add(4, 0, false);
  EXPECT_LT(record.chance(4, 0), 0.11);
  for (int i = 0; i < 200; ++i) record.add(4, 0, true);
  EXPECT_GT(record.chance(4, 0), 0.97);
}

DraftCost cost_of(double rtt, double first_row, double further_row) {
  DraftCost cost{rtt, {}, {}};
  for (size_t rows = 1; rows <= kMostDrafts + 1; ++rows)
    cost.cloud_ms[rows - 1] = first_row + further_row * static_cast<double>(rows - 1);
  return cost;
}

TEST(BestDraft, MakesMostTokensAMillisecond) {
  const std::array<double, 7> good = {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9};
  const std::array<double, 7> bad = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1};
  const std::array<double, 7> falling = {0.9, 0.9, 0.02, 0.9, 0.9, 0.9, 0.9};
  EXPECT_EQ(best_draft(good, cost_of(50, 1, 0.1)), 7u);
  EXPECT_EQ(best_draft(good, cost_of(0, 1, 1)), 0u);  // each row costs a step
  EXPECT_EQ(best_draft(good, cost_of(0, 1, 0)), 7u);  // or nothing
  EXPECT_EQ(best_draft(bad, cost_of(0, 1, 0.2)), 0u);
  EXPECT_EQ(best_draft(falling, cost_of(50, 1, 1)), 2u);
  EXPECT_EQ(best_draft({}, cost_of(50, 1, 1)), 0u);
  // A gain of less than 5 % is not worth it.
  EXPECT_EQ(best_draft(std::array{0.9}, cost_of(0, 1, 0.82)), 0u);
  EXPECT_EQ(best_draft(std::array{0.9}, cost_of(0, 1, 0.80)), 1u);
  // Each count by hand, of 20 ms and 1 ms a row.
  size_t best = 0;
  double most = 1.05 / 21, tokens = 1, chance = 1;
  for (size_t count = 0; count <= 7; ++count) {
    if (count > 0) tokens += chance *= 0.6;
    if (count > 0 && tokens / (21 + static_cast<double>(count)) > most) {
      most = tokens / (21 + static_cast<double>(count));
      best = count;
    }
  }
  const std::array<double, 7> fair = {0.6, 0.6, 0.6, 0.6, 0.6, 0.6, 0.6};
  EXPECT_EQ(best_draft(fair, cost_of(20, 1, 1)), best);
  EXPECT_GT(best, 0u);
  EXPECT_LT(best, 7u);
}

TEST(DraftLimits, AreTheFlagsTheCloudsAndItsPrices) {
  EXPECT_EQ(DraftLimits{}.count(), 7u);
  EXPECT_EQ(DraftLimits({.most = 100}).count(), 7u);
  EXPECT_EQ(DraftLimits({.most = 3, .cloud = 5}).count(), 3u);
  EXPECT_EQ(DraftLimits({.cloud = 2}).count(), 2u);
  EXPECT_EQ(DraftLimits({.price = 0.5}).count(), 7u);
  EXPECT_EQ(DraftLimits({.price = 0.51}).count(), 0u);
}

// A row costs the cloud and the line something whether its guess is right or not.
TEST(BestDraft, PaysForEachRow) {
  const std::array<double, 7> even = {0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5};
  const std::array<double, 7> good = {0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9};
  const std::array<double, 1> low = {0.3}, fair = {0.4};
  DraftCost cost = cost_of(50, 1, 0.1);
  EXPECT_EQ(best_draft(low, cost), 1u);
  EXPECT_EQ(best_draft(even, cost), 7u);
  cost.row_ms = DraftCost::kRowPrice * cost.step_ms(1);
  EXPECT_EQ(best_draft(low, cost), 0u);
  EXPECT_EQ(best_draft(fair, cost), 1u);
  EXPECT_EQ(best_draft(even, cost), 1u);
  EXPECT_GE(best_draft(good, cost), 5u);
}

// Counts the guesses that are sent, where every one is wrong.
size_t refused(bool drawn, size_t tokens) {
  Drafts drafts(Ids{1, 2}, nullptr, drawn);
  DraftCost cost = cost_of(50, 1, 0.1);
  cost.row_ms = DraftCost::kRowPrice * cost.step_ms(1);
  size_t sent = 0;
  for (size_t i = 0; i < tokens; ++i) {
    sent += drafts.next({}, &cost).size();
    const auto other = static_cast<int32_t>(i % 2 == 0 ? 1 : 3 + i);
    drafts.took({&other, 1});
  }
  return sent;
}

TEST(Drafts, StopAfterAFewGuessesThatWereRefused) {
  EXPECT_GT(refused(false, 400), 0u);
  EXPECT_LE(refused(false, 400), 4 * kMostDrafts);
  EXPECT_EQ(refused(true, 400), 0u);
}

TEST(DraftMemory, KnowsDrawnTextsApart) {
  DraftMemory memory;
  DraftRecord good;
  for (int i = 0; i < 50; ++i) good.add(1, 0, true);
  memory.keep({}, good);
  EXPECT_GT(memory.record().chance(1, 0), 0.9);
  EXPECT_DOUBLE_EQ(memory.record(true).chance(1, 0), 0.1);
  memory.keep({}, DraftRecord(true), true);
  EXPECT_GT(memory.record().chance(1, 0), 0.9);
}

// Guesses that are not sent are watched, so that they are sent again when they have become good.
TEST(Drafts, TryAgainWhatDidNotPay) {
  DraftRecord bad;
  for (size_t length = 1; length <= DraftText::kLongest; ++length) {
    for (size_t place = 0; place < kMostDrafts; ++place) {
      for (int i = 0; i < 100; ++i) bad.add(length, place, false);
    }
  }
  DraftMemory memory;
  memory.keep({}, bad);
  Drafts drafts(Ids{1, 2, 1}, &memory);
  const DraftCost cost = cost_of(0, 1, 0.2);
  size_t unsent = 0;
  for (int32_t id = 2; drafts.next({}, &cost).empty() && unsent < 200; ++unsent) {
    drafts.took({&id, 1});
    id = 3 - id;
  }
  EXPECT_GT(unsent, 5u);
  EXPECT_LT(unsent, 50u);
}

TEST(DraftTimes, AreTriedBeforeTheyAreBelieved) {
  DraftTimes times;
  EXPECT_EQ(times.ms(1), times.ms(8));
  for (const double ms : {3, 2, 9}) times.add(1, ms);
  EXPECT_DOUBLE_EQ(times.ms(1), 2);
  EXPECT_DOUBLE_EQ(times.ms(8), 2);
  for (const double ms : {20, 5}) times.add(8, ms);
  EXPECT_DOUBLE_EQ(times.ms(8), 2);
  times.add(8, 4);
  EXPECT_DOUBLE_EQ(times.ms(8), 4);
  EXPECT_DOUBLE_EQ(times.ms(7), 2);
  // The last few count.
  for (int i = 0; i < 8; ++i) times.add(8, 6);
  EXPECT_DOUBLE_EQ(times.ms(8), 6);
}

// --- Texts

// A model whose steps are counted.
struct Counting {
  explicit Counting(const Golden& golden)
      : device(make_cpu_device(1)),
        shard(*device, *golden.model, golden.weights(), test::options_for(*golden.model)),
        batcher(shard) {}
  std::unique_ptr<Device> device;
  Shard shard;
  Batcher batcher;
};

struct Drafted {
  Ids tokens;
  size_t trips = 0;  // behind the prompt's
  size_t rows = 0;   // in these trips
  double ms = 0;     // that they take, by the cost
};

Ids plain(Batcher& batcher, const ModelConfig& config, const Ids& prompt,
          const SamplingOptions& sampling, int tokens) {
  GenerateOptions options;
  options.max_tokens = tokens;
  options.ignore_end = true;
  options.sampling = sampling;
  LocalForward forward(batcher);
  return generate(forward, config, nullptr, prompt, options, {}).tokens;
}

// The ids that rows of logits give: [1 + drafts, V], behind the last id of `history` and behind
// each draft. As many drafts as were right, and one id more.
Ids verify_drafts(std::span<const float> logits, std::span<const int32_t> history,
                  std::span<const int32_t> drafts, const SamplingOptions& options,
                  size_t generated = 0) {
  CHECK(logits.size() % (drafts.size() + 1) == 0);
  const size_t vocab = logits.size() / (drafts.size() + 1);
  std::vector<int32_t> text(history.begin(), history.end());
  for (size_t row = 0; row <= drafts.size(); ++row) {
    text.push_back(
        sample(logits.subspan(row * vocab, vocab), text, options, text.size(), generated + row));
    if (row < drafts.size() && text.back() != drafts[row]) break;
  }
  return {text.begin() + static_cast<ptrdiff_t>(history.size()), text.end()};
}

Drafted with_drafts(Batcher& batcher, const Ids& prompt, const SamplingOptions& sampling,
                    size_t tokens, const DraftCost* cost, DraftMemory* memory = nullptr) {
  LocalForward forward(batcher);
  Drafts drafts(prompt, memory, sampling.temperature > 0);
  Drafted result;
  Ids text = prompt;
  std::span<const float> logits = forward.run({.tokens = prompt});
  Ids came = verify_drafts(logits, text, {}, sampling);
  for (;;) {
    drafts.took(came);
    text.insert(text.end(), came.begin(), came.end());
    const size_t made = text.size() - prompt.size();
    if (made >= tokens) break;
    const Ids guesses = list(drafts.next({.most = tokens - made - 1}, cost));
    Ids rows = {text.back()};
    rows.insert(rows.end(), guesses.begin(), guesses.end());
    logits = forward.run({.past = static_cast<uint32_t>(text.size()) - 1,
                          .tokens = rows,
                          .phase = Phase::kGenerate,
                          .wanted = Wanted::kAll});
    ++result.trips;
    result.rows += rows.size();
    if (cost != nullptr) result.ms += cost->step_ms(rows.size());
    came = verify_drafts(logits, text, guesses, sampling, made);
  }
  result.tokens = {text.begin() + static_cast<ptrdiff_t>(prompt.size()), text.end()};
  return result;
}

TEST(VerifyDrafts, ARowIsSampledWithItsOwnHistory) {
  // Three ids; the penalty makes one that was there less likely than the next.
  const std::vector<float> logits = {5, 4.5f, 1, 5, 4.5f, 1, 5, 4.5f, 4};
  SamplingOptions greedy;
  greedy.temperature = 0;
  EXPECT_EQ(verify_drafts(logits, Ids{2}, Ids{0, 0}, greedy), (Ids{0, 0, 0}));
  EXPECT_EQ(verify_drafts(logits, Ids{2}, Ids{1, 0}, greedy), (Ids{0}));
  greedy.repetition_penalty = 1.5f;
  EXPECT_EQ(verify_drafts(logits, Ids{2}, Ids{0, 1}, greedy), (Ids{0, 1, 0}));
  EXPECT_EQ(verify_drafts(logits, Ids{2}, Ids{0, 0}, greedy), (Ids{0, 1}));
  // A guess that was right counts for the rows behind it, and the prompt's ids do not: 5 - 0.75.
  greedy.repetition_penalty = 1;
  greedy.frequency_penalty = 0.75f;
  EXPECT_EQ(verify_drafts(logits, Ids{0, 0}, Ids{0, 1}, greedy), (Ids{0, 1, 0}));
  EXPECT_EQ(verify_drafts(logits, Ids{0, 0}, Ids{0, 1}, greedy, 1), (Ids{1}));
}

// Each way in which a draw depends on the tokens before it, at once.
SamplingOptions bent(uint64_t seed) {
  return {.temperature = 0.7f,
          .seed = seed,
          .min_p = 0.05f,
          .presence_penalty = 0.4f,
          .frequency_penalty = 0.3f,
          .logit_bias = {{3, 4}, {7, -100}}};
}

TEST(VerifyDrafts, TextsAreTheSameWithThem) {
  const bool long_run = std::getenv("SPLIT_LONG") != nullptr;
  const DraftCost cost = cost_of(50, 1, 0.1);
  for (const char* name : {"demo", "rand-a", "rand-b", "rand-c"}) {
    const Golden golden(name);
    const ModelConfig& config = golden.model->config();
    Counting model(golden);
    DraftMemory memory;
    const int count = long_run ? 200 : 3;
    const int tokens = std::min(32, config.context - 16);
    for (int n = 0; n < count; ++n) {
      Ids prompt;
      for (int i = 0; i < 1 + n % 12; ++i) prompt.push_back((n * 7919 + i * i * 31) % config.vocab);
      for (const SamplingOptions& sampling :
           {SamplingOptions{0, 0, 1, 1}, SamplingOptions{0.8f, 0, 0.95f, 1, -1, uint64_t(n)},
            SamplingOptions{0.3f, 20, 1, 1.2f, -1, uint64_t(n)}, bent(uint64_t(n))}) {
        const Ids expected = plain(model.batcher, config, prompt, sampling, tokens);
        const DraftCost* const costs[] = {&cost, nullptr};
        EXPECT_EQ(with_drafts(model.batcher, prompt, sampling, static_cast<size_t>(tokens),
                              costs[n % 2], &memory)
                      .tokens,
                  expected)
            << name << " " << n;
      }
    }
  }
}

// Whatever ends a text, and whatever is told of its tokens, is the same with drafts.
TEST(Generation, GivesTheSameTextWithDrafts) {
  const Golden golden("demo");
  const ModelConfig& config = golden.model->config();
  Counting model(golden);
  const Tokenizer tokenizer =
      Tokenizer::from_vocab_merges(read_file(SPLIT_SOURCE_DIR "/weights/demo/vocab.json", 1 << 20),
                                   read_file(SPLIT_SOURCE_DIR "/weights/demo/merges.txt", 1 << 20));
  const Ids prompt = tokenizer.encode("And the king said yes, and the king said yes, and", true);
  GenerateOptions greedy;
  greedy.max_tokens = 60;
  greedy.ignore_end = true;
  greedy.sampling.temperature = 0;
  GenerateOptions stopped = greedy, drawn = greedy, scored = greedy, ended = greedy, full = greedy;
  GenerateOptions penalised = greedy, less = greedy;
  penalised.sampling = bent(5);
  less.sampling.frequency_penalty = 0.2f;
  less.sampling.presence_penalty = 0.2f;
  stopped.stop = {"."};
  drawn.sampling = {0.8f, 40, 0.95f, 1.1f, 3};
  scored.logprobs = 2;
  scored.score_prompt = true;
  scored.max_tokens = 20;
  ended.ignore_end = false;
  ended.sampling = {1.2f, 0, 1, 1, 11};
  full.max_tokens = 1 << 20;  // to the context's end
  const Ids lengthy = [&] {
    Ids ids(static_cast<size_t>(config.context) - 30, prompt.back());
    std::ranges::copy(prompt, ids.begin());
    return ids;
  }();
  DraftMemory memory;
  for (const GenerateOptions* options :
       {&greedy, &stopped, &drawn, &scored, &ended, &full, &penalised, &less}) {
    const Ids& ids = options == &full ? lengthy : prompt;
    const auto text = [&](const DraftOptions& drafts, size_t stop_at = SIZE_MAX) {
      GenerateOptions with = *options;
      with.drafts = drafts;
      LocalForward forward(model.batcher);
      std::string pieces;
      size_t tokens = 0;
      const Generated made = generate(forward, config, &tokenizer, ids, with,
                                      [&](std::string_view piece, const ScoredToken* token) {
                                        pieces += cat("|", piece);
                                        tokens += token != nullptr;
                                        return tokens < stop_at;
                                      });
      std::string told = cat(made.text, name_of(made.finish_reason), pieces);
      for (const auto* list : {&made.scored, &made.scored_prompt}) {
        for (const ScoredToken& token : *list) {
          told += cat(" ", token.id, ":", token.logprob);
          for (const TokenLogprob& top : token.top) told += cat(",", top.id, ":", top.logprob);
        }
      }
      return std::pair(made.tokens, told);
    };
    const auto expected = text({});
    EXPECT_FALSE(expected.first.empty());
    EXPECT_EQ(text({.most = 7, .always = true}), expected);
    if (options == &full) continue;  // its prompt takes long
    EXPECT_EQ(text({.most = 7, .memory = &memory}), expected);
    EXPECT_EQ(text({.most = 7, .always = true, .memory = &memory}), expected);
    EXPECT_EQ(text({.most = 2, .always = true}), expected);
    EXPECT_EQ(text({.most = 7, .always = true}, 5), text({}, 5));
  }
}

TEST(Generation, TakesFewerStepsWithDrafts) {
  const Golden golden("rand-a");
  Counting model(golden);
  struct Steps : LocalForward {
    using LocalForward::LocalForward;
    std::span<const float> run(const SequenceRows& rows) override {
      ++count;
      return LocalForward::run(rows);
    }
    size_t count = 0;
  };
  GenerateOptions options;
  options.max_tokens = 40;
  options.ignore_end = true;
  options.sampling.temperature = 0;
  Steps plain(model.batcher), drafted(model.batcher);
  const Ids prompt = {3, 1, 2};
  const ModelConfig& config = golden.model->config();
  const Ids expected = generate(plain, config, nullptr, prompt, options, {}).tokens;
  EXPECT_EQ(plain.count, expected.size());
  options.drafts = {.most = 7, .always = true};
  Generation text(drafted, config, nullptr, prompt, options);
  while (text.next({})) continue;
  EXPECT_EQ(text.take().tokens, expected);
  EXPECT_LT(drafted.count, plain.count);
  // Each guess that was right saved a step.
  EXPECT_EQ(text.rows().accepted(), plain.count - drafted.count);
  EXPECT_GE(text.rows().drafted(), text.rows().accepted());
}

// Texts of the demo at 50 ms a trip, where a row costs the cloud and the line something.
class Trips : public testing::Test {
 protected:
  // Tokens a trip, and how much faster than one row a trip; rows a token, of the prompt's too.
  struct Figures {
    double tokens = 0, speed = 0, rows = 0, bytes = 0;
  };
  static DraftCost line_of(double rtt) {
    DraftCost cost = cost_of(rtt, 1.5, 0.3);
    cost.row_ms = DraftCost::kRowPrice * cost.step_ms(1);
    return cost;
  }
  Figures figures(const std::vector<std::string>& prompts, const SamplingOptions& sampling,
                  size_t tokens, const DraftCost& cost) {
    constexpr double kRow = 1280, kStep = 330;  // bytes
    DraftMemory memory;
    double made = 0, trips = 0, rows = 0, given = 0, ms = 0;
    for (const std::string& text : prompts) {
      const Ids prompt = tokenizer_.encode(text, true);
      const Drafted one = with_drafts(model_.batcher, prompt, sampling, tokens, &cost, &memory);
      made += static_cast<double>(one.tokens.size() - 1);
      trips += static_cast<double>(one.trips);
      rows += static_cast<double>(one.rows);
      given += static_cast<double>(prompt.size());
      ms += one.ms;
    }
    return {made / trips, made * cost.step_ms(1) / ms, (rows + given) / (made + given),
            ((rows + given) * kRow + trips * kStep) / ((made + given) * kRow + made * kStep)};
  }
  static std::string file(const char* name) {
    return read_file(cat(SPLIT_SOURCE_DIR, "/weights/demo/", name), 1 << 20);
  }

  const Golden golden_{"demo"};
  Counting model_{golden_};
  const Tokenizer tokenizer_ = Tokenizer::from_vocab_merges(file("vocab.json"), file("merges.txt"));
};

const SamplingOptions kGreedy{0, 0, 1, 1, 0};

const std::vector<std::string> kProse = {"Once upon a time there was a little", "The king",
                                         "Far out in the sea", "The old woman shut the door",
                                         "A poor miller had three sons"};

TEST_F(Trips, OfGreedyProseBringTwoTokens) {
  const Figures found = figures(kProse, kGreedy, 100, line_of(50));
  std::printf("draft_tokens_per_trip_greedy %.2f, %.2f of the speed, %.2f of the rows\n",
              found.tokens, found.speed, found.rows);
  EXPECT_GE(found.tokens, 2.0);
  EXPECT_GE(found.speed, 1.6);
}

TEST_F(Trips, OfLoopsBringFourTokens) {
  std::string loop;
  for (int i = 0; i < 6; ++i) loop += "and the king said, \"Yes!\" and the queen said, \"No!\" ";
  const Figures found = figures({loop}, kGreedy, 150, line_of(50));
  std::printf("draft_tokens_per_trip_loops %.2f, %.2f of the speed, %.2f of the rows\n",
              found.tokens, found.speed, found.rows);
  EXPECT_GE(found.tokens, 4.0);
  EXPECT_GE(found.speed, 3.2);
}

TEST_F(Trips, OfDrawnTextCostNobodyMuchWhereTheyBringLittle) {
  for (const double rtt : {50., 0.}) {
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      for (const char* prompt : {"Once upon a time", "The king", "Far out in the sea"}) {
        const Figures found = figures({prompt}, {0.8f, 0, 0.95f, 1, -1, seed}, 100, line_of(rtt));
        EXPECT_GE(found.speed, 0.97) << prompt << " " << seed << " at " << rtt;
        EXPECT_LE(found.rows, 1.1) << prompt << " " << seed << " at " << rtt;
        EXPECT_LE(found.bytes, 1.15) << prompt << " " << seed << " at " << rtt;
      }
    }
  }
}

}  // namespace
}  // namespace split
