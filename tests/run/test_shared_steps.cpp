// Jobs of many threads in one step. Made to run under the thread sanitizer too.
#include <gtest/gtest.h>

#include <thread>

#include "sequences.h"

namespace split::test {
namespace {

struct Answer {
  std::vector<float> prompt;               // states of all rows of the prompt
  std::vector<std::vector<float>> logits;  // of each generated row
};

// A prompt, then tokens one by one, as a session does it.
Answer answer(Batcher& batcher, std::span<const int32_t> prompt, std::span<const int32_t> more) {
  Shard& shard = batcher.shard();
  Sequence sequence(shard);
  Answer result;
  result.prompt =
      append(batcher, sequence.id, {.range = {.to = 1}, .tokens = prompt, .wanted = Wanted::kAll});
  shard.pages().truncate(sequence.id, 0);
  result.logits.push_back(append(batcher, sequence.id, {.tokens = prompt}));
  for (const int32_t& token : more) {
    result.logits.push_back(
        append(batcher, sequence.id, {.tokens = std::span(&token, 1), .phase = Phase::kGenerate}));
  }
  return result;
}

class BatcherTest : public testing::Test {
 protected:
  BatcherTest()
      : golden_("rand-a"), device_(make_cpu_device(2)), ids_(golden_.values<int32_t>("eval.ids")) {}
  std::unique_ptr<Shard> shard(uint64_t sequences, uint32_t max_rows = 64) {
    ShardOptions options = options_for(*golden_.model);
    options.max_rows = max_rows;
    options.kv_bytes = kv_bytes_for(*golden_.model, {}, Profile::kF32, sequences);
    return std::make_unique<Shard>(*device_, *golden_.model, golden_.weights(), options);
  }
  std::span<const int32_t> prompt(size_t i) const {
    return std::span(ids_).subspan(3 * i, 5 + 7 * (i % 7));
  }
  std::span<const int32_t> more(size_t i) const { return std::span(ids_).subspan(5 * i + 2, 8); }

  Golden golden_;
  std::unique_ptr<Device> device_;
  std::vector<int32_t> ids_;
};

TEST_F(BatcherTest, ManyThreadsGetWhatTheyWouldGetAlone) {
  constexpr size_t kThreads = 12;
  const auto shared = shard(kThreads, 40);
  std::vector<Answer> alone, together(kThreads);
  {
    Batcher batcher(*shared);
    for (size_t i = 0; i < kThreads; ++i) alone.push_back(answer(batcher, prompt(i), more(i)));
  }
  for (const uint32_t slice : {4u, 16u, 64u}) {
    Batcher batcher(*shared, slice);
    std::vector<std::thread> threads;
    for (size_t i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] { together[i] = answer(batcher, prompt(i), more(i)); });
    }
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < kThreads; ++i) {
      EXPECT_EQ(first_difference(together[i].prompt, alone[i].prompt), -1);
      expect_same(together[i].logits, alone[i].logits, cat("thread ", i, ", slice ", slice));
    }
    EXPECT_EQ(batcher.depth(), 0u);
  }
  EXPECT_EQ(shared->pages().in_use(), 0u);
}

// Wanted rows of every kind arrive where they belong.
TEST_F(BatcherTest, DeliversListedRows) {
  const auto whole = shard(2, 16);
  Batcher batcher(*whole);
  const auto tokens = std::span(ids_).first(50);
  Sequence a(*whole), b(*whole);
  const size_t width = whole->width(1);
  const std::vector<uint32_t> list = {0, 15, 16, 49};
  SequenceRows rows{.range = {.to = 1}, .tokens = tokens, .wanted = Wanted::kAll};
  const std::vector<float> all = append(batcher, a.id, rows);
  rows.wanted = Wanted(list);
  const std::vector<float> some = append(batcher, b.id, rows);
  ASSERT_EQ(some.size(), list.size() * width);
  for (size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(first_difference(std::span(some).subspan(i * width, width),
                               std::span(all).subspan(list[i] * width, width)),
              -1);
  }
}

// Jobs that fail, for each reason there is, amid others that do not.
TEST_F(BatcherTest, OneJobsErrorIsItsOwn) {
  const auto small = shard(2);  // pages for two whole contexts
  Batcher reference(*small);
  std::vector<Answer> alone;
  for (size_t i = 0; i < 3; ++i) {
    alone.push_back(answer(reference, prompt(0), more(i)));
  }
  for (int round = 0; round < 20; ++round) {
    Batcher batcher(*small, 4);
    std::vector<Answer> answers(3);
    std::vector<std::thread> threads;
    // Holds one context's pages; the three below need one page each.
    Sequence holder(*small);
    ASSERT_TRUE(small->pages().reserve(holder.id, 64));
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] { answers[i] = answer(batcher, prompt(0), more(i)); });
    }
    const auto failing = [&](ErrorKind kind, std::vector<int32_t> tokens) {
      threads.emplace_back([&, kind, tokens = std::move(tokens)] {
        Sequence sequence(*small);
        try {
          append(batcher, sequence.id, {.range = {.to = 1}, .tokens = tokens});
          ADD_FAILURE() << "a job that cannot run ran";
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), kind) << error.what();
        }
      });
    };
    failing(ErrorKind::kInput, std::vector<int32_t>(65, 1));  // context 64
    failing(ErrorKind::kInput, {1, -1});
    failing(ErrorKind::kInput, {1, golden_.model->config().vocab});
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    for (size_t i = 0; i < 3; ++i) expect_same(answers[i].logits, alone[i].logits, "beside errors");

    // The holder takes another context but three pages: who wants four gets none, the rest run on.
    Sequence second(*small);
    ASSERT_TRUE(small->pages().reserve(second.id, 16));
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        try {
          answers[i] = answer(batcher, prompt(0), more(i));
        } catch (const Error& error) {
          EXPECT_EQ(error.kind(), ErrorKind::kBusy);
          answers[i] = {};
        }
      });
    }
    failing(ErrorKind::kBusy, std::vector<int32_t>(64, 1));
    for (std::thread& thread : threads) thread.join();
    for (size_t i = 0; i < 3; ++i) {
      if (!answers[i].logits.empty())
        expect_same(answers[i].logits, alone[i].logits, "beside busy");
    }
  }
  EXPECT_EQ(small->pages().in_use(), 0u);
}

// Also where other steps would run stage by stage to be timed.
TEST_F(BatcherTest, AStepOfNoStageGivesItsRowsBack) {
  const auto owned = shard(1);
  Batcher batcher(*owned);
  Sequence sequence(*owned);
  for (int step = 0; step < 3; ++step) {
    std::vector<float> in(owned->width(1));
    for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<float>(step) + 0.25f * i;
    const SequenceRows rows{.range = {1, 1},
                            .hidden = in,
                            .width = static_cast<uint32_t>(in.size()),
                            .phase = Phase::kGenerate};
    EXPECT_EQ(append(batcher, sequence.id, rows), in) << step;
  }
}

}  // namespace
}  // namespace split::test
