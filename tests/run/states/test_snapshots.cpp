// Snapshots of states in the cache of prefixes: where texts find them, that no bit depends on them,
// and who gives way when their room is spent.
#include <gtest/gtest.h>

#include <random>

#include "device/drawn.h"
#include "run/forward.h"
#include "run/sessions.h"
#include "support/forwarding_device.h"
#include "support/golden_model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace split::test {
namespace {

// A device that says that copies failed; it is not one that can be lost.
struct CopiesFail : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void copy(std::span<const BufferCopy> copies) override {
    if (fails) throw Error(ErrorKind::kDevice, "[test] failed");
    ForwardingDevice::copy(copies);
  }
  bool fails = false;
};

class Snapshots : public testing::TestWithParam<std::tuple<const char*, const char*>> {
 protected:
  Snapshots()
      : golden(cat("models/", std::get<0>(GetParam()))),
        failing(make()),
        device(&failing),
        shard(*device, *golden.model, golden.weights(), options_of(60)),
        batcher(shard),
        other(*device, *golden.model, golden.weights(), options_for(*golden.model)),
        plain(other) {
    batcher.keep_prefixes();
    batcher.on_step(
        [this](const StepSeen& seen) { rows += seen.prompt_rows + seen.generated_rows; });
  }
  // With so many states, each half of a pair of snapshots too.
  ShardOptions options_of(uint64_t states) const {
    ShardOptions options = options_for(*golden.model);
    const uint64_t one = state_bytes_for(*golden.model, {}) / 2,
                   pages = kv_bytes_for(*golden.model, {}, Profile::kF32, 1) - 2 * one;
    options.kv_bytes = std::max(2 * states * one, states * one + 8 * pages);
    EXPECT_GE(states * one, 8 * pages);
    return options;
  }
  std::vector<int32_t> text(size_t count, uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<int32_t> ids(count);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 600);
    return ids;
  }
  static std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static std::vector<int32_t> first(const std::vector<int32_t>& ids, size_t count) {
    return {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(count)};
  }
  static void expect_equal(std::span<const float> got, std::span<const float> want) {
    EXPECT_TRUE(!got.empty() && std::ranges::equal(got, want));
  }
  // A turn: its prompt, then an answer's rows one by one. Each row is that of a batcher without a
  // cache. Returns the rows that it took.
  uint32_t turn(const std::vector<int32_t>& prompt, const std::vector<int32_t>& answer,
                const PrefixRoot& root = {}) {
    LocalForward taking(batcher, {}, root), computing(plain);
    expect_equal(taking.run({.tokens = prompt}), computing.run({.tokens = prompt}));
    auto past = static_cast<uint32_t>(prompt.size());
    for (const int32_t& id : answer) {
      const SequenceRows row{
          .past = past++, .tokens = std::span(&id, 1), .phase = Phase::kGenerate};
      expect_equal(taking.run(row), computing.run(row));
    }
    return taking.cached();
  }

  void SetUp() override {
    if (!why_not.empty()) GTEST_SKIP() << why_not;
  }
  std::unique_ptr<Device> make() {
    try {
      return make_device({std::get<1>(GetParam()), 2});
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kDevice) throw;
      why_not = error.what();
      return make_cpu_device(2);
    }
  }
  bool on_gpu() const { return std::get<1>(GetParam()) != std::string_view("cpu"); }
  // Else, on a GPU or the processor that stands in for one, a seeded share of the turns runs.
  bool is_quick() const { return runs_all() || !on_gpu(); }

  std::string why_not;
  const Golden golden;
  CopiesFail failing;
  Device* const device;
  Shard shard;
  Batcher batcher;
  Shard other;
  Batcher plain;
  uint64_t rows = 0;  // rows that the batcher computed
};

TEST_P(Snapshots, OfAPromptServeTheNextTurn) {
  for (uint32_t n = 17; n < 150; n += runs_all() ? 1 : is_quick() ? 5 : 23) {
    SCOPED_TRACE(n);
    const PrefixRoot root{"a", cat(n)};
    const std::vector<int32_t> prompt = text(n, n), answer = text(1 + n % 37, n + 1000),
                               more = text(20, n + 2000);
    turn(prompt, answer, root);
    // Without the prompt's last ids, as templates leave them out of a history.
    EXPECT_GE(turn(joined(first(prompt, n - 8), more), {}, root) + 24, n);
    // With the whole answer.
    const auto whole = joined(joined(prompt, answer), more);
    EXPECT_GE(turn(whole, {}, root) + 15, n + answer.size());
  }
}

TEST_P(Snapshots, AreLeftWhereTextsPart) {
  Drawn drawn(is_quick() ? 6 : 40);
  for (uint32_t at = 16; at < 200; ++at) {
    if (!drawn.next()) continue;
    SCOPED_TRACE(at);
    const PrefixRoot root{"a", cat(at)};
    const std::vector<int32_t> same = text(220, at);
    turn(same, {}, root);
    turn(joined(first(same, at), text(30, at + 1000)), {}, root);
    EXPECT_GE(turn(joined(first(same, at), text(30, at + 2000)), {}, root) + 15, at);
  }
}

TEST_P(Snapshots, ThatCouldNotBeCopiedAreNowhere) {
  const std::vector<int32_t> prompt = text(100, 1);
  failing.fails = true;
  EXPECT_EQ(turn(prompt, {}), 0u);
  failing.fails = false;
  EXPECT_EQ(shard.pages().snapshots(), 0u);
  EXPECT_EQ(turn(prompt, {}), 0u);
  EXPECT_GE(turn(prompt, {}) + 15, 100u - 8);
  // Nor does the text itself go back to one.
  LocalForward taking(batcher, {}, PrefixRoot{"b", ""}), computing(plain);
  failing.fails = true;
  for (LocalForward* const one : {&taking, &computing}) {
    one->run({.tokens = prompt});
    failing.fails = false;
    one->run({.past = 100, .tokens = text(40, 2), .phase = Phase::kGenerate});
  }
  const std::vector<int32_t> last = text(5, 3);
  const SequenceRows behind{.past = 95, .tokens = last, .phase = Phase::kGenerate};
  expect_equal(taking.run(behind), computing.run(behind));
}

TEST_P(Snapshots, OfSeventeenIdsAreFound) {
  const std::vector<int32_t> prompt = text(17, 1);
  EXPECT_EQ(turn(prompt, {}), 0u);
  EXPECT_EQ(turn(prompt, {}), 16u);
  EXPECT_EQ(turn(joined(prompt, text(30, 2)), {}), 16u);
}

TEST_P(Snapshots, AreOfOneOwnerAndSalt) {
  const std::vector<int32_t> prompt = text(100, 1);
  turn(prompt, {}, {"a", ""});
  EXPECT_EQ(turn(prompt, {}, {"b", ""}), 0u);
  EXPECT_EQ(turn(prompt, {}, {"a", "salt"}), 0u);
  EXPECT_EQ(turn(prompt, {}, {"a", ""}), 80u);
}

// Ten turns of a chat whose template leaves thoughts out of what was answered before.
TEST_P(Snapshots, ServeAChatThatLeavesThoughtsOut) {
  std::vector<int32_t> history = text(40, 7);  // ids that all later turns have
  uint32_t before = 0;
  for (uint32_t i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    const std::vector<int32_t> opens = text(3, 100), thoughts = text(11 + i % 5, 200 + i),
                               answer = text(6 + i, 300 + i);
    const std::vector<int32_t> prompt = joined(history, opens);  // the last ids open thoughts
    const uint32_t took = turn(prompt, joined(thoughts, answer));
    EXPECT_GE(took + 24, before);
    before = static_cast<uint32_t>(prompt.size());
    history = joined(joined(history, answer), text(5, 400 + i));
  }
}

// Messages of such a chat, by a published template.
TEST_P(Snapshots, ServeAChatByItsTemplate) {
  if (!is_quick()) GTEST_SKIP() << "takes 10 s on a processor that stands in for a GPU";
  const ChatTemplate chat(read_file(source("tests/golden/models/chat/qwen3.jinja"), 1 << 20), {});
  const auto tokenizer = load_tokenizer(model_dir(cat("models/", std::get<0>(GetParam()))));
  ASSERT_TRUE(tokenizer);
  ChatInput input;
  input.messages = Json::array();
  input.add_generation_prompt = true;
  uint32_t before = 0;
  for (int i = 0; i < 10; ++i) {
    SCOPED_TRACE(i);
    input.messages.push_back({{"role", "user"}, {"content", cat("and ", i, "?")}});
    const std::string text = chat.render(ChatInput(input));
    EXPECT_EQ(text.find("think"), text.npos);
    const std::vector<int32_t> prompt = tokenizer->encode(text);
    const std::string thought = cat("it is ", i), words = cat("yes ", i);
    const uint32_t took =
        turn(prompt,
             tokenizer->encode(cat("<think>\n", thought, "\n</think>\n\n", words, "<|im_end|>\n")));
    EXPECT_GE(took + 24, before);
    before = static_cast<uint32_t>(prompt.size());
    input.messages.push_back(
        {{"role", "assistant"}, {"reasoning_content", thought}, {"content", words}});
  }
  EXPECT_GT(before, 150u);
}

TEST_P(Snapshots, AreWhereRowsFurtherBackAreComputedFrom) {
  const std::vector<int32_t> all = text(300, 3), prompt = first(all, 200);
  LocalForward computing(plain);
  const auto logits = computing.run({.tokens = all, .wanted = Wanted::kAll});
  const std::vector<float> want(logits.begin(), logits.end());
  const size_t vocab = want.size() / all.size();
  Drawn drawn(is_quick() ? 10 : 70);
  for (uint32_t back = 17; back <= 300; ++back) {
    if (!drawn.next()) continue;
    SCOPED_TRACE(back);
    LocalForward forward(batcher, {}, PrefixRoot{"a", cat(back)});
    forward.run({.tokens = prompt});
    for (uint32_t past = 200; past < 300; past += 4) {
      forward.run(
          {.past = past, .tokens = std::span(all).subspan(past, 4), .phase = Phase::kGenerate});
    }
    const uint32_t past = 300 - back;
    rows = 0;
    expect_equal(
        forward.run({.past = past, .tokens = std::span(all).subspan(past), .wanted = Wanted::kAll}),
        std::span(want).subspan(past * vocab));
    EXPECT_EQ(rows, past >= 192 ? 300 - 192 : 300);
  }
}

// A text that goes back behind its snapshot and on with other ids has that snapshot no more.
TEST_P(Snapshots, OfRowsThatAreGoneAreNotTakenUp) {
  const std::vector<int32_t> prompt = text(200, 3), rest = text(80, 4), last = text(5, 5);
  LocalForward taking(batcher, {}, PrefixRoot{}), computing(plain);
  for (LocalForward* const one : {&taking, &computing}) {
    one->run({.tokens = prompt});
    one->run({.past = 180, .tokens = rest, .phase = Phase::kGenerate});
  }
  const SequenceRows rows_behind{.past = 230, .tokens = last, .phase = Phase::kGenerate};
  expect_equal(taking.run(rows_behind), computing.run(rows_behind));
}

// Steps end at multiples of 1,024 rows in texts that are long enough; here at where texts part.
TEST_P(Snapshots, EndTheStepsOfAPrompt) {
  const StageRange all{.to = golden.model->config().layers};
  const PrefixCache& cache = *batcher.prefixes();
  EXPECT_EQ(cache.step_end(all, 0, 0), 1024u);
  EXPECT_EQ(cache.step_end(all, 1024, 1024), 2048u);
  EXPECT_EQ(cache.step_end(all, 100, 160), 160u);
  EXPECT_EQ(cache.step_end(all, 160, 160), 1024u);
}

// Room of twenty states for 200 sessions that take each other's rows, go back and are evicted.
TEST_P(Snapshots, AStormOfSessionsChangesNoBit) {
  if (!is_quick()) GTEST_SKIP() << "takes minutes on a GPU: SPLIT_LONG=1 runs it";
  const int layers = golden.model->config().layers;
  const auto width = static_cast<size_t>(golden.model->config().channels);
  Shard few(*device, *golden.model, golden.weights(), options_of(20));
  ASSERT_EQ(few.pages().states(), 20u);
  Batcher storm(few);
  storm.keep_prefixes();
  Sessions sessions(1000);
  storm.on_pages_spent([&] { return sessions.evict_one(storm); });
  constexpr uint32_t kTexts = 12, kRows = 150;
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::vector<float>> want;
  for (uint32_t i = 0; i < kTexts; ++i) {
    const auto begin = i == 0 ? std::vector<int32_t>() : first(texts[i / 2], 10 + 9 * i);
    texts.push_back(joined(begin, text(kRows - begin.size(), i)));
    Line line(other);
    want.push_back(line.run({.range = {.to = layers}, .tokens = texts[i], .wanted = Wanted::kAll}));
  }
  const PrefixRoot root{"a", ""};
  const StageRange range{.to = layers};
  std::mt19937 random(9);
  uint64_t taken = 0;
  const auto step = [&](Session& session) {
    KvPages& pages = few.pages();
    const uint32_t at = session.receipt.steps % kTexts;  // its text
    const auto past = static_cast<uint32_t>(session.receipt.bytes_in);
    uint32_t have = pages.own(session.sequence, past);
    const uint32_t end = std::min<uint32_t>(kRows, past + 1 + random() % 40);
    SequenceHistory whole;
    whole.append(std::span(texts[at]).first(end), Phase::kPrompt);
    std::optional<PrefixCache::Taken> took;
    if (have % kPageTokens == 0) {
      took.emplace(storm.prefixes()->take(root, session.sequence, have, whole, range, end - 1, {}));
      taken += took->rows;
    }
    while ((have = pages.length(session.sequence)) < end) {
      const uint32_t stop = storm.prefixes()->step_end(range, have, took ? took->parts_at : 0);
      const uint32_t count = std::min(end, stop) - have;
      std::vector<float> out(count * width);
      Job job{session.sequence,
              {.range = range,
               .past = have,
               .tokens = std::span(texts[at]).subspan(have, count),
               .wanted = Wanted::kAll},
              out.data()};
      try {
        storm.run(job);
      } catch (const SequenceLost&) {
        continue;
      }
      ASSERT_TRUE(std::ranges::equal(out, std::span(want[at]).subspan(have * width, out.size())));
      whole.cut_back(have + count);
      storm.prefixes()->put(root, session.sequence, whole, range,
                            have + count == stop ? stop : PrefixCache::end_of(whole));
      whole.append(std::span(texts[at]).subspan(have + count, end - have - count), Phase::kPrompt);
    }
    session.receipt.bytes_in = random() % 4 == 0 ? random() % end : end % kRows;
  };
  for (int i = 0; i < (runs_all() ? 20000 : 1500); ++i) {
    const SessionName name(cat(random() % 200));
    const bool made = sessions.put(name, "m", {.to = layers}, storm) == Sessions::Put::kCreated;
    sessions.with(name, [&](Session& session) {
      if (made) session.receipt.steps = random() % kTexts;
      if (made) session.receipt.bytes_in = 0;
      step(session);
    });
    ASSERT_FALSE(HasFailure()) << i;
    const KvPages& pages = few.pages();
    ASSERT_LE(pages.states_in_use() + (pages.snapshots() + 1) / 2, pages.states());
  }
  EXPECT_GT(sessions.evicted(), 100u);
  EXPECT_GT(taken, 100u);
  // All of them in use: the next one is refused, and the others go on.
  std::vector<std::unique_ptr<LocalForward>> held;
  while (sessions.evict_one(storm)) continue;
  EXPECT_EQ(few.pages().states_in_use(), 0u);
  for (int i = 0; i < 20; ++i) {
    held.push_back(std::make_unique<LocalForward>(storm));
    held.back()->run({.tokens = std::span(texts[0]).first(50)});
  }
  EXPECT_EQ(few.pages().snapshots(), 0u);
  try {
    LocalForward more(storm);
    more.run({.tokens = std::span(texts[0]).first(50)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBusy);
  }
  held[3]->run({.past = 50, .tokens = std::span(texts[0]).subspan(50)});
  held.clear();
  EXPECT_EQ(few.pages().states_in_use(), 0u);
  EXPECT_EQ(few.pages().in_use(), 0u);
  storm.prefixes()->forget(root);
  EXPECT_EQ(few.pages().snapshots(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, Snapshots,
                         testing::Combine(testing::Values("qwen35", "qwen35-text"),
                                          testing::Values("cpu", "vulkan")));

}  // namespace
}  // namespace split::test
