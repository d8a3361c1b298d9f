// text/: stop strings and the sampler.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <limits>
#include <set>

#include "text/sampler.h"
#include "text/stop.h"
#include "text_testing.h"

namespace split {
namespace {

// ---------------------------------------------------------------- stop strings

TEST(StopStrings, EndTheTextBeforeTheMatch) {
  StopStrings stop({"\n\n", "END"});
  EXPECT_EQ(stop.push("one\n"), "one");
  EXPECT_EQ(stop.push("two E"), "\ntwo ");
  EXPECT_EQ(stop.push("N"), "");
  EXPECT_EQ(stop.push("E"), "EN");
  EXPECT_FALSE(stop.stopped());
  EXPECT_EQ(stop.push("NDmore"), "");
  EXPECT_TRUE(stop.stopped());
  EXPECT_EQ(stop.matched(), 1u);
  EXPECT_EQ(stop.push("more"), "");
  EXPECT_EQ(stop.flush(), "");
}

TEST(StopStrings, GiveBackAnUnfinishedMatchAtTheEnd) {
  StopStrings stop({"abc"});
  EXPECT_EQ(stop.push("xab"), "x");
  EXPECT_EQ(stop.flush(), "ab");
  StopStrings none;
  EXPECT_EQ(none.push("text"), "text");
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"a", ""}, std::vector<std::string>(1, std::string(1025, 'a')),
        std::vector<std::string>(17, "a")}) {
    EXPECT_EQ(message_of([&] { StopStrings stop(wrong); }),
              "[stop] expected at most 16 texts of 1 to 1024 bytes");
  }
}

TEST(StopStrings, ShareTheirTablesWithCopies) {
  const StopTexts texts(std::vector<std::string>(16, std::string(1024, 'a')));
  const StopTexts copy = texts;
  EXPECT_EQ(&copy[15], &texts[15]);
  EXPECT_LE(texts[15].text.capacity() + texts[15].fallback.capacity() * sizeof(uint16_t),
            StopTexts::kTextBytes);
  StopStrings one(copy), other(texts);  // each at its own place
  EXPECT_EQ(one.push(std::string(1000, 'a')), "");
  EXPECT_EQ(other.push("ab"), "ab");
}

TEST(StopStrings, MatchAsASearchWouldHoweverTheTextIsCut) {
  RandomText random(6);
  const auto letters = [&](size_t most) {
    std::string text;
    for (size_t n = random.below(most) + 1; n > 0; --n) text += "ab"[random.below(2)];
    return text;
  };
  for (int i = 0; i < 20'000; ++i) {
    std::vector<std::string> strings;
    for (size_t n = random.below(3); n > 0; --n) strings.push_back(letters(6));
    const std::string text = letters(20);
    // The first end of any match, then the longest that ends there.
    std::string expected = text;
    bool found = false;
    for (size_t end = 1; end <= text.size() && !found; ++end) {
      for (const std::string& s : strings) {
        if (!text.substr(0, end).ends_with(s)) continue;
        found = true;
        expected = text.substr(0, std::min(expected.size(), end - s.size()));
      }
    }
    StopStrings stop(strings);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random.below(4);
      out += stop.push(std::string_view(text).substr(at, n));
      at += n;
      if (stop.stopped()) continue;
      // Nothing is held that could not be the start of a stop string.
      const std::string held = text.substr(0, std::min(at, text.size())).substr(out.size());
      const auto starts = [&](const std::string& s) { return s.starts_with(held); };
      ASSERT_TRUE(held.empty() || std::any_of(strings.begin(), strings.end(), starts));
    }
    out += stop.flush();
    ASSERT_EQ(out, expected) << text;
    ASSERT_EQ(stop.stopped(), found);
  }
}

TEST(StopStrings, TakeTimeInProportionToTheText) {
  StopStrings stop({std::string(1023, 'a') + "b"});
  size_t out = 0;
  out += stop.push(std::string(20'000'000, 'a')).size();  // the product of both would take minutes
  EXPECT_EQ(out, 20'000'000u - 1023);
}

// ---------------------------------------------------------------- sampler

// Random123's known answers: kat_vectors, philox4x32 10.
TEST(Sampler, DrawsByPhilox) {
  using Counter = std::array<uint32_t, 4>;
  const uint32_t all = ~0u;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({all, all, all, all}, {all, all}),
            (Counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
  EXPECT_EQ(uniform_at(0, 0), static_cast<double>(0x6627e8d5e169c58dull >> 11) * 0x1p-53);
  std::set<double> seen;
  for (const uint64_t seed : {0ull, 1ull, 1ull << 32, ~0ull}) {
    for (const uint64_t position : {0ull, 1ull, 1ull << 32, ~0ull}) {
      const double u = uniform_at(seed, position);
      EXPECT_TRUE(u >= 0 && u < 1);
      EXPECT_TRUE(seen.insert(u).second);
    }
  }
}

TEST(Sampler, GreedyTakesTheLargestAndOfEqualsTheFirst) {
  const SamplingOptions greedy{.temperature = 0};
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {}, greedy, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-0.0f, 0.0f}, {}, greedy, 0), 0);
  EXPECT_EQ(sample(std::vector<float>{-5}, {}, greedy, 9), 0);
  EXPECT_EQ(sample(std::vector<float>{1, 3, 3, 2}, {}, {.top_k = 1}, 0), 1);
}

TEST(Sampler, RepetitionPenaltyDividesPositiveAndMultipliesNegative) {
  const SamplingOptions options{.temperature = 0, .repetition_penalty = 2};
  // 4 -> 2, whether it was said once or often.
  EXPECT_EQ(sample(std::vector<float>{4, 3, 1}, Ids{0}, options, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{4, 1.5f, 1}, Ids{0, 0, 0}, options, 0), 0);
  // -1 -> -2
  EXPECT_EQ(sample(std::vector<float>{-1, -1.5f}, Ids{0}, options, 0), 1);
  EXPECT_EQ(sample(std::vector<float>{-1, -2.5f}, Ids{0}, options, 0), 0);
  EXPECT_EQ(sample(std::vector<float>{3e38f, -3e38f}, Ids{1}, options, 0), 0);
  for (const int32_t id : {-1, 2}) {
    EXPECT_EQ(message_of([&] {
                sample(std::vector<float>{1, 2}, Ids{id}, options, 0);
              }),
              cat("[sampler] history: expected an id from 0 to 1, got ", id));
  }
}

// Counts as llama.cpp and Ollama do: what is further back is as likely as ever.
TEST(Sampler, RepetitionPenaltyCanBeOfTheLastTokensAlone) {
  const std::vector<float> logits{4, 3, 2, 1};
  const std::vector<int32_t> history{0, 1, 2, 2};
  const auto best = [&](int last) {
    return sample(logits, history,
                  {.temperature = 0, .repetition_penalty = 10, .repeat_last_n = last}, 4, 2);
  };
  EXPECT_EQ(best(-1), 3);
  EXPECT_EQ(best(64), 3);
  EXPECT_EQ(best(4), 3);
  EXPECT_EQ(best(3), 0);
  EXPECT_EQ(best(1), 0);
  EXPECT_EQ(best(0), 0);
  EXPECT_FALSE((SamplingOptions{.repetition_penalty = 2, .repeat_last_n = 0}).changes_logits());
  EXPECT_THROW(best(-2), Error);
}

TEST(Sampler, PresenceAndFrequencyPenaltiesCountWhatWasGenerated) {
  const std::vector<float> logits = {4, 3, 1};
  SamplingOptions options{.temperature = 0, .presence_penalty = 0.75f};
  // 4 - 0.75 = 3.25 however often; of the prompt (generated: 0) nothing counts.
  EXPECT_EQ(sample(logits, Ids{0, 0, 0}, options, 0, 3), 0);
  options.presence_penalty = 1.25f;  // 2.75
  EXPECT_EQ(sample(logits, Ids{0, 1, 2}, options, 0, 0), 0);
  EXPECT_EQ(sample(logits, Ids{0, 1, 2}, options, 0, 2), 0);
  EXPECT_EQ(sample(logits, Ids{2, 2, 0}, options, 0, 1), 1);
  options = {.temperature = 0, .frequency_penalty = 0.5f};
  EXPECT_EQ(sample(logits, Ids{0}, options, 0, 1), 0);           // 3.5
  EXPECT_EQ(sample(logits, Ids{0, 0}, options, 0, 2), 0);        // 3, the smaller id
  EXPECT_EQ(sample(logits, Ids{0, 2, 0, 0}, options, 0, 4), 1);  // 2.5
  options.frequency_penalty = -2;                                // 1 + 2 * 2 = 5
  EXPECT_EQ(sample(logits, Ids{2, 2}, options, 0, 2), 2);
  // Both, behind the repetition penalty: 4 / 2 - 0.5 - 2 * 0.25 = 1.
  options = {.temperature = 0,
             .repetition_penalty = 2,
             .presence_penalty = 0.5f,
             .frequency_penalty = 0.25f};
  EXPECT_EQ(sample(std::vector<float>{4, 0.999f}, Ids{0, 0}, options, 0, 2), 0);
  EXPECT_EQ(sample(std::vector<float>{4, 1.001f}, Ids{0, 0}, options, 0, 2), 1);
  EXPECT_EQ(sample(std::vector<float>{3e38f, -3e38f}, Ids{1}, options, 0, 1), 0);
}

TEST(Sampler, ABiasIsAddedToALogit) {
  const std::vector<float> logits = {4, 3, 1};
  SamplingOptions options{.temperature = 0, .logit_bias = {{2, 2.5f}, {0, -1.5f}}};
  EXPECT_EQ(sample(logits, {}, options, 0), 2);  // 2.5, 3, 3.5
  options.logit_bias = {{0, -100}, {1, -100}};
  options.temperature = 1;
  for (uint64_t position = 0; position < 100; ++position) {
    EXPECT_EQ(sample(logits, {}, options, position), 2);
  }
  EXPECT_FALSE(top_suffices({.top_k = 1, .logit_bias = {{0, 1}}}, 8));
  EXPECT_FALSE(top_suffices({.top_k = 1, .presence_penalty = 1}, 8));
  EXPECT_FALSE(top_suffices({.top_k = 1, .frequency_penalty = 1}, 8));
  EXPECT_TRUE(top_suffices({.top_k = 1, .min_p = 0.5f}, 8));
  EXPECT_EQ(message_of([&] {
              sample(logits, {}, {.logit_bias = {{3, 1}}}, 0);
            }),
            "[sampler] logit_bias: expected an id from 0 to 2, got 3");
  EXPECT_EQ(message_of([&] { sample(logits, {}, {.min_p = 1.5f}, 0); }),
            "[sampler] min_p: expected a number from 0 to 1, got 1.5");
  EXPECT_EQ(message_of([&] { sample(logits, {}, {.presence_penalty = std::nanf("")}, 0); }),
            "[sampler] presence_penalty: expected a finite number, got nan");
}

TEST(Sampler, OnlyWhatIsAllowedComes) {
  const std::vector<float> logits = {4, 3, 1, 2};
  const std::vector<uint8_t> allowed = {0, 0, 1};  // nothing of what is behind
  for (const float temperature : {0.0f, 5.0f}) {
    for (uint64_t position = 0; position < 50; ++position) {
      EXPECT_EQ(sample(logits, {}, {.temperature = temperature}, position, 0, allowed), 2);
    }
  }
  EXPECT_EQ(sample(logits, {}, {.temperature = 0}, 0, 0, std::vector<uint8_t>{0, 1, 1, 1}), 1);
  EXPECT_EQ(message_of([&] {
              sample(logits, {}, {}, 0, 0, std::vector<uint8_t>{0, 0});
            }),
            "[sampler] allowed: expected at least one id, got none");
}

// Draws at positions 0 .. n - 1.
std::vector<int> counts_of(const std::vector<float>& logits, const SamplingOptions& options, int n,
                           const Ids& history = {}) {
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < n; ++i) {
    ++counts[static_cast<size_t>(sample(logits, history, options, static_cast<uint64_t>(i)))];
  }
  return counts;
}

// Pearson's statistic of `counts` against `weights`; what weighs nothing must never be drawn.
double chi_square(const std::vector<int>& counts, const std::vector<double>& weights) {
  double total = 0, weight = 0, sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) total += counts[i], weight += weights[i];
  for (size_t i = 0; i < counts.size(); ++i) {
    EXPECT_TRUE(weights[i] > 0 || counts[i] == 0) << i;
    const double expected = total * weights[i] / weight;
    if (expected > 0) sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

TEST(Sampler, DrawsFromTheSoftmax) {
  const std::vector<float> logits = {0.5f, -1, 2, 1.5f, 0, -3, 1, 2, -0.5f, 0.25f};
  const Ids history = {2, 5};
  const auto weights = [&](double temperature, const std::set<int>& kept, double penalty = 1) {
    std::vector<double> w(logits.size(), 0.0);
    for (const int id : kept) {
      double logit = logits[static_cast<size_t>(id)];
      if (id == 2) logit /= penalty;
      if (id == 5) logit *= penalty;
      w[static_cast<size_t>(id)] = std::exp(logit / temperature);
    }
    return w;
  };
  const std::set<int> all = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  const int n = 100'000;
  // 9 degrees of freedom: above 27.9 once in 1000; the seed is fixed.
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_p = 1}, n), weights(1, all)),
            27.9);
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 0.5f, .top_p = 1, .seed = 7}, n),
                       weights(0.5, all)),
            27.9);
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_p = 1, .repetition_penalty = 1.5f},
                                 n, history),
                       weights(1, all, 1.5)),
            27.9);
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_k = 4, .top_p = 1}, n),
                       weights(1, {2, 7, 3, 6})),
            16.3);  // 3 degrees
  // Probabilities, largest first: .265 (2) .265 (7) .161 (3) .098 (6) .059 (0) ...: .69 before 6,
  // .79 with it.
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_p = 0.75f}, n),
                       weights(1, {2, 7, 3, 6})),
            16.3);
  // At least half as likely as the best: 1.31 and more, whatever the temperature.
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 2, .top_p = 1, .min_p = 0.5f}, n),
                       weights(2, {2, 7, 3})),
            13.8);  // 2 degrees
  // Four are at least 0.3 times as likely. Of all ids these have .79, so that top-p leaves them; of
  // themselves three would do.
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_p = 0.75f, .min_p = 0.3f}, n),
                       weights(1, {2, 7, 3, 6})),
            16.3);
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_p = 0.6f, .min_p = 0.3f}, n),
                       weights(1, {2, 7, 3})),
            13.8);
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_p = 0.95f, .min_p = 0.7f}, n),
                       weights(1, {2, 7})),
            10.8);
  // The best three have .383 .383 .233: two of them reach 0.75.
  EXPECT_LT(chi_square(counts_of(logits, {.temperature = 1, .top_k = 3, .top_p = 0.75f}, n),
                       weights(1, {2, 7})),
            10.8);
}

TEST(Sampler, BreaksTiesById) {
  const std::vector<float> logits = {1, 2, 2, 2, 0};
  for (const int count : counts_of(logits, {.temperature = 1, .top_k = 2, .top_p = 1}, 200)) {
    EXPECT_TRUE(count == 0 || count > 50);
  }
  const auto by_k = counts_of(logits, {.temperature = 1, .top_k = 2, .top_p = 1}, 200);
  EXPECT_EQ(by_k[1] + by_k[2], 200);
  const auto by_p = counts_of(logits, {.temperature = 1, .top_p = 0.5f}, 200);  // .26 each
  EXPECT_EQ(by_p[1] + by_p[2], 200);
  EXPECT_EQ(counts_of(logits, {.temperature = 1, .top_p = 0}, 200)[1], 200);
}

// The definition: sort everything by (logit, id), cut, sum, walk.
int32_t sample_slowly(const std::vector<float>& logits, const Ids& history,
                      const SamplingOptions& options, uint64_t position) {
  std::vector<int32_t> ids(logits.size());
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
  const auto logit = [&](int32_t id) {
    const double own = logits[static_cast<size_t>(id)], penalty = options.repetition_penalty;
    if (std::find(history.begin(), history.end(), id) == history.end()) return own;
    return own > 0 ? own / penalty : own * penalty;
  };
  const auto weight = [&](int32_t id) { return std::exp(logit(id) / options.temperature); };
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  if (options.temperature == 0) return ids.front();
  if (options.top_k > 0) ids.resize(std::min(ids.size(), static_cast<size_t>(options.top_k)));
  double total = 0, sum = 0;
  for (const int32_t id : ids) total += weight(id);
  size_t kept = 0;
  while (kept < ids.size() && (kept == 0 || sum < options.top_p * total))
    sum += weight(ids[kept++]);
  ids.resize(kept);
  if (options.top_p == 1) std::sort(ids.begin(), ids.end());
  const double target = uniform_at(options.seed, position) * sum;
  sum = 0;
  for (const int32_t id : ids) {
    if ((sum += weight(id)) > target) return id;
  }
  return ids.back();
}

TEST(Sampler, AgreesWithSortingEverything) {
  RandomText random(7);
  for (int i = 0; i < 3000; ++i) {
    std::vector<float> logits(1 + random.below(400));
    // Steps of 1/8: many ties.
    for (float& logit : logits) logit = static_cast<float>(random.below(80)) / 8 - 5;
    SamplingOptions options{.temperature = 0.25f + static_cast<float>(random.below(8)) / 4};
    if (random.below(2) == 0) options.top_k = static_cast<int>(random.below(500));
    options.top_p = static_cast<float>(random.below(65)) / 64;
    options.seed = random.below(1000);
    const uint64_t position = random.below(1000);
    ASSERT_EQ(sample(logits, {}, options, position), sample_slowly(logits, {}, options, position))
        << logits.size() << " " << options.top_k << " " << options.top_p;
  }
}

TEST(Sampler, TheTopSufficesForGreedyAndForTopK) {
  EXPECT_TRUE(top_suffices({.temperature = 0}, 1));
  EXPECT_TRUE(top_suffices({.top_k = 8}, 8));
  EXPECT_FALSE(top_suffices({.top_k = 9}, 8));
  EXPECT_FALSE(top_suffices({.top_k = 0}, 8));
  EXPECT_FALSE(top_suffices({.temperature = 0, .repetition_penalty = 1.1f}, 8));
  RandomText random(11);
  for (int i = 0; i < 1000; ++i) {
    std::vector<float> logits(64 + random.below(400));
    for (float& logit : logits) logit = static_cast<float>(random.below(160)) / 8 - 5;
    Ids ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    std::vector<float> top;
    for (size_t n = 0; n < 64; ++n) top.push_back(logits[static_cast<size_t>(ids[n])]);
    for (size_t n = 0; n < 64; ++n) top.push_back(static_cast<float>(ids[n]));
    SamplingOptions options{.temperature = static_cast<float>(random.below(4)) / 2};
    options.top_k = i % 4 == 0 ? 64 : 1 + static_cast<int>(random.below(64));
    options.top_p = i % 3 == 0 ? 1 : static_cast<float>(random.below(65)) / 64;
    options.seed = random.below(1000);
    const uint64_t position = random.below(1000);
    ASSERT_EQ(sample_top(top, options, position), sample(logits, {}, options, position))
        << options.temperature << " " << options.top_k << " " << options.top_p;
    top[0] = std::numeric_limits<float>::infinity();
    ASSERT_THROW(sample_top(top, options, position), Error);
  }
}

// The sampler looks at few of many ids.
TEST(Sampler, AgreesWithSortingManyIdsWhateverThePenalty) {
  RandomText random(9);
  for (int i = 0; i < 60; ++i) {
    std::vector<float> logits(1000 + random.below(2000));
    for (float& logit : logits) logit = static_cast<float>(random.below(200)) / 16 - 10;
    if (i % 10 == 0) std::fill(logits.begin(), logits.end(), -2.0f);
    Ids history(random.below(40));
    // Mostly of the best ones, some more than once.
    for (int32_t& id : history) {
      id = static_cast<int32_t>(random.below(logits.size()));
      for (size_t n = 0; n < 20 && logits[static_cast<size_t>(id)] < 1; ++n) ++id %= 1000;
    }
    constexpr float kPenalties[] = {1, 1.5f, 0.5f};
    SamplingOptions options{.temperature = static_cast<float>(random.below(4)) / 2};
    options.repetition_penalty = kPenalties[random.below(3)];
    options.top_k = static_cast<int>(random.below(20));
    options.top_p = i % 2 == 0 ? 1 : 0.53f;  // no sum of equal weights
    options.seed = random.below(1000);
    const uint64_t position = random.below(1000);
    ASSERT_EQ(sample(logits, history, options, position),
              sample_slowly(logits, history, options, position))
        << logits.size() << " " << options.temperature << " " << options.top_k << " "
        << options.repetition_penalty;
  }
}

// Flat and steep: the fewest best that reach top_p are one or nearly all.
TEST(Sampler, AgreesWithSortingWhereverTheTopEnds) {
  RandomText random(13);
  const int count = std::getenv("SPLIT_LONG") == nullptr ? 30 : 150;
  for (int i = 0; i < count; ++i) {
    std::vector<float> logits(1 + random.below(20'000));
    constexpr float kSpreads[] = {0, 0.1f, 1, 8, 60};
    const float spread = kSpreads[random.below(5)];
    for (float& logit : logits) {
      float sum = 0;  // of uniform numbers: nearly normal
      for (int n = 0; n < 4; ++n) sum += static_cast<float>(random.below(1 << 20)) / (1 << 19) - 1;
      logit = spread * sum;
    }
    constexpr float kTops[] = {1e-3f, 0.5f, 0.95f, 0.999f, 0.9999999f, 1};
    SamplingOptions options{.temperature = 0.25f + static_cast<float>(random.below(8)) / 4};
    options.top_p = kTops[random.below(6)];
    for (options.seed = 0; options.seed < 10; ++options.seed) {
      ASSERT_EQ(sample(logits, {}, options, 5), sample_slowly(logits, {}, options, 5))
          << logits.size() << " " << spread << " " << options.temperature << " " << options.top_p;
    }
  }
}

TEST(Sampler, RepeatsItselfAndFollowsTheSeed) {
  std::vector<float> logits(50257);
  RandomText random(8);
  for (float& logit : logits) logit = static_cast<float>(random.below(100000)) / 10000;
  const auto draw = [&](uint64_t seed) {
    Ids ids;
    for (uint64_t i = 0; i < 20; ++i) ids.push_back(sample(logits, ids, {.seed = seed}, i));
    return ids;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
}

TEST(Sampler, RefusesWhatIsNotANumber) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (const float bad : {nan, inf, -inf}) {
    const std::vector<float> logits = {1, bad, 2};
    const std::string expected =
        cat("[sampler] overflow: expected finite logits, got ", bad, " for id 1");
    const std::vector<float> top = {1, bad, 0, 1};  // logits, then their ids
    // Not the asker's fault.
    const auto message = [](auto&& call) { return message_of(call, ErrorKind::kIntegrity); };
    EXPECT_EQ(message([&] { sample(logits, {}, {}, 0); }), expected);
    EXPECT_EQ(message([&] { sample(logits, {}, {.temperature = 0}, 0); }), expected);
    EXPECT_EQ(message([&] { sample_top(top, {}, 0); }), expected);
    EXPECT_EQ(message([&] { top_logprobs(logits, 1); }), expected);
    EXPECT_EQ(message([&] { logprob_of(logits, 0); }), expected);
  }
  EXPECT_EQ(message_of([] { sample({}, {}, {}, 0); }),
            "[sampler] logits: expected at least one, got none");
}

TEST(Sampler, RefusesOptionsOutOfRange) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const auto error = [](const SamplingOptions& options) {
    return message_of([&] { options.validate(); });
  };
  EXPECT_EQ(error({}), "no error");
  EXPECT_EQ(error({.temperature = 0, .top_k = 1 << 30, .top_p = 0}), "no error");
  EXPECT_EQ(error({.temperature = -1}),
            "[sampler] temperature: expected a number of at least 0, got -1");
  for (const float bad : {nan, inf, -inf, -0.5f}) {
    EXPECT_EQ(error({.temperature = bad}).find("[sampler] temperature: "), 0u);
    EXPECT_EQ(error({.top_p = bad}).find("[sampler] top_p: "), 0u);
    EXPECT_EQ(error({.repetition_penalty = bad}).find("[sampler] repetition_penalty: "), 0u);
  }
  EXPECT_EQ(error({.top_k = -1}), "[sampler] top_k: expected at least 0, got -1");
  EXPECT_EQ(error({.top_p = 1.5f}), "[sampler] top_p: expected a number from 0 to 1, got 1.5");
  EXPECT_EQ(error({.repetition_penalty = 0}),
            "[sampler] repetition_penalty: expected a number above 0, got 0");
  EXPECT_NE(message_of([] { sample(std::vector<float>{1}, {}, {.top_k = -1}, 0); }), "no error");
}

TEST(Sampler, TakesExtremeLogitsAndTemperatures) {
  const std::vector<float> logits = {3.4e38f, -3.4e38f, 0};
  for (const float temperature : {1e-45f, 1e-3f, 1.0f, 3.4e38f}) {
    for (uint64_t i = 0; i < 20; ++i) {
      const int32_t id =
          sample(logits, Ids{0, 1, 2},
                 {.temperature = temperature, .top_p = 1, .repetition_penalty = 1e-30f}, i);
      EXPECT_TRUE(id == 0 || temperature > 1e37f);
    }
  }
}

TEST(Sampler, GivesLogSoftmax) {
  const std::vector<float> logits = {1, 3, 2, 3};
  const double sum = std::exp(-2.0) + 1 + std::exp(-1.0) + 1;
  const auto top = top_logprobs(logits, 3);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ((Ids{top[0].id, top[1].id, top[2].id}), (Ids{1, 3, 2}));
  EXPECT_FLOAT_EQ(top[0].logprob, static_cast<float>(-std::log(sum)));
  EXPECT_FLOAT_EQ(top[2].logprob, static_cast<float>(-1 - std::log(sum)));
  EXPECT_EQ(logprob_of(logits, 3), top[1].logprob);
  EXPECT_EQ(top_logprobs(logits, 0).size(), 0u);
  EXPECT_EQ(top_logprobs(logits, 99).size(), 4u);
  EXPECT_EQ(logprob_of(std::vector<float>{1000, 0}, 1), -1000);
  EXPECT_EQ(message_of([&] { top_logprobs(logits, -1); }),
            "[sampler] logprobs: expected at least 0, got -1");
  EXPECT_EQ(message_of([&] { logprob_of(logits, 4); }),
            "[sampler] logprob: expected an id from 0 to 3, got 4");
}

}  // namespace
}  // namespace split
