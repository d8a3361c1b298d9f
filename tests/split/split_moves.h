// Texts whose cut moves, by hand.
#pragma once

#include <cstdlib>

#include "split/live_states.h"
#include "split/split_by_hand.h"

namespace split::test {

// The GPU, or the processor that stands in for one; without either the CPU, and why not.
inline std::string why_not_vulkan;
inline std::unique_ptr<Device> vulkan_or_cpu() {
  try {
    return make_device({"vulkan", 1});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kDevice) throw;
    why_not_vulkan = error.what();
    return make_cpu_device(1);
  }
}

// One side on each kind of device, in the profile that has the same bits on both: makes the edge's,
// then the cloud's.
struct Sides {
  bool vulkan;  // is the edge
  std::unique_ptr<Device> operator()() {
    vulkan = !vulkan;
    return vulkan ? make_cpu_device(1) : vulkan_or_cpu();
  }
};

// Where a text begins, and where it is to be with so many tokens out.
struct Schedule {
  edge::Cut start;
  std::vector<std::pair<uint32_t, edge::Cut>> moves;
  bool asked = false;  // the text is asked at these tokens, and moves when it can

  // A few moves to anywhere at rising tokens, the cloud too.
  static Schedule random(std::minstd_rand& random, int layers, int tokens) {
    const auto any_cut = [&] {
      const int any = static_cast<int>(random() % static_cast<unsigned>(layers + 2)) - 1;
      return any < 0 ? edge::Cut::cloud() : edge::Cut(any);
    };
    Schedule all{.start = any_cut(), .moves = {}};
    auto at = 1 + static_cast<uint32_t>(random() % 3);
    for (; at < static_cast<uint32_t>(tokens); at += 1 + random() % 6) {
      all.moves.emplace_back(at, any_cut());
    }
    return all;
  }
  std::string text() const {
    std::string out = cat(asked ? "asked " : "", "0:", start.name());
    for (const auto& [at, cut] : moves) out += cat(",", at, ":", cut.name());
    return out;
  }
};

// Evicts some of the snapshots of states, by sequences that want their room.
inline void evict_snapshots(KvPages& pages, int layers, uint32_t left) {
  std::vector<std::unique_ptr<OneSequence>> others;
  while (pages.snapshots() > left) {
    others.push_back(std::make_unique<OneSequence>(pages));
    if (!pages.reserve(others.back()->id, 1, {.to = layers})) return;
  }
}

// A course that is driven by hand.
class ForwardByHand : public Forward {
 public:
  ForwardByHand(ByHand& hand, edge::TextSession& text_session)
      : hand_(hand), text_session_(text_session) {}
  std::span<const float> run(const SequenceRows& rows) override {
    hand_.drive(text_session_, text_session_.run(rows));
    return text_session_.results();
  }
  uint32_t most_rows(uint32_t past) const override { return text_session_.most_rows(past); }

 private:
  ByHand& hand_;
  edge::TextSession& text_session_;
};

// Texts whose cut moves, by hand.
class SplitMoves : public SplitAlone {
 protected:
  using SplitAlone::SplitAlone;
  struct Result {
    std::vector<edge::Move> moves;
    edge::SplitCounts counts;
    double slowest_ms = 0;  // of the tokens
    double alone_ms = 0;    // of those of no cloud
    uint64_t accepted = 0;  // guesses, of the last place's
    Generated made = {};
    uint64_t taken_rows = 0;       // by a text that shares them
    std::vector<double> moved_ms;  // when the token behind each move was there, not from a stream
  };

  // A text that moves so; each of its logits is the whole model's, and nothing is left of it.
  Result run(const Schedule& schedule, const GenerateOptions& options, unsigned seed = 0) {
    SCOPED_TRACE(schedule.text());
    const Model& model = *golden.model;
    edge::MoveOptions moves{.deepest = {}, .targets = {}, .leaves_lost_cloud = leaves_lost_cloud};
    int lowest = layers();
    const auto include = [&](edge::Cut cut) {
      moves.deepest = std::max(moves.deepest, edge::Cut(cut.blocks(layers())));
      lowest = std::min(lowest, cut.blocks(layers()));
    };
    include(schedule.start);
    for (const auto& [at, cut] : schedule.moves) {
      if (!schedule.asked) moves.targets.push_back({.cut = cut, .at = at});
      include(cut);
    }
    Shard shard(*device, model, golden.weights(),
                shard_options(StageRange::from_block(lowest, Point::head())));
    Batcher tail(shard);
    tail_pages = &shard.pages();
    Shard whole_shard(*device, model, golden.weights(), shard_options(StageRange()));
    Batcher whole_batcher(whole_shard);
    Result result;
    if (shares) tail.keep_prefixes();
    for (int texts = shares ? 2 : 1; texts > 0;
         --texts) {  // the second one takes rows of the first
      LocalForward whole(whole_batcher);
      ByHand hand(cloud, seed);
      hand.kernel = kernel;
      hand.token = 4 * kernel;
      if (leaves_lost_cloud) {
        hand.rescue = [&] { return std::make_shared<edge::TailSide>(whole_batcher); };
      }
      edge::TextSession text_session(model, schedule.start, &tail, {}, result.counts, {}, &moves);
      if (offers) text_session.mover()->offer(tail, {}, {});
      if (shares) text_session.share({"me", ""});
      TextLoop loop(model.config(), tokenizer, prompt, options);
      ForwardByHand forward(hand, text_session);
      std::optional<DraftedRows> rows;
      while (!loop.ended()) {
        const double before = hand.ms();
        for (const auto& [at, cut] : schedule.moves) {
          if (schedule.asked && at == text_session.tokens_out() + 1) text_session.mover()->aim(cut);
        }
        const auto known = static_cast<uint32_t>(loop.ids().size());
        if (known > prompt.size() && !(rows && rows->has(loop))) {
          hand.drive(text_session, text_session.meet(known - 1));
        }
        if (text_session.on_cloud()) {
          rows.reset();
          stream(hand, text_session, loop, whole, options);
          continue;
        }
        if (!rows) {
          const size_t pending = known > prompt.size() ? 1 : 0;
          rows.emplace(forward, model.config(), loop.ids().first(known - pending), options.drafts);
        }
        if (!rows->has(loop)) rows->give(forward.run(rows->step(loop)));
        const std::span<const float> got = rows->take(loop);
        while (result.moved_ms.size() < result.counts.moves.size())
          result.moved_ms.push_back(hand.ms());
        if (after_step) after_step(text_session, result.counts);
        if (text_session.cut() == 0) result.alone_ms += hand.ms() - before;
        result.slowest_ms = std::max(result.slowest_ms, hand.ms() - before);
        const std::span<const float> expected = whole.run(loop.wanted());
        EXPECT_TRUE(std::ranges::equal(got, expected)) << text_session.tokens_out();
        result.accepted = rows->accepted();
        loop.logits(expected, on_text);
      }
      const auto made = static_cast<uint32_t>(loop.ids().size()) - 1;
      const int here = text_session.cut().blocks(layers());
      states_compared += expect_equal_states(shard, whole_shard, here, layers(), made) +
                         expect_equal_states(cloud.batcher().shard(), whole_shard, 0, here, made);
      result.made = loop.take();
      text_session.leave_rows();
      for (const std::string& session : text_session.leave())
        cloud.ask({edge::Send::kClose, session});
    }
    if (ends_lost) cloud.forget_all();  // it was not told that the text has ended
    if (shares) result.taken_rows = tail.prefixes()->taken_rows();
    EXPECT_EQ(shard.pages().in_use(), 0u);
    EXPECT_EQ(cloud.sessions(), 0u);
    EXPECT_EQ(cloud.batcher().pages().in_use(), 0u);
    EXPECT_EQ(shard.pages().states_in_use(), 0u);
    EXPECT_EQ(cloud.batcher().pages().states_in_use(), 0u);
    result.moves = result.counts.moves;
    return result;
  }
  // The tokens that the cloud has: each is the whole model's.
  void stream(ByHand& hand, edge::TextSession& text_session, TextLoop& loop, LocalForward& whole,
              const GenerateOptions& options) {
    GenerateOptions rest = options;
    rest.max_tokens = static_cast<int>(loop.left());
    hand.drive(text_session, text_session.stream(loop.ids(), prompt.size(), rest),
               [&](const ScoredToken& token) {
                 const auto told = [&](const TextPiece& piece, const ScoredToken* scored) {
                   if (scored != nullptr && options.logprobs >= 0) {
                     EXPECT_EQ(token.logprob, scored->logprob);
                   }
                   return !on_text || on_text(piece, scored);
                 };
                 loop.logits(whole.run(loop.wanted()), told);
                 EXPECT_EQ(token.id, loop.ids().back()) << loop.ids().size();
                 return !loop.ended();
               });
    if (loop.ended() || text_session.finish_reason() == FinishReason::kNone) return;
    EXPECT_EQ(text_session.finish_reason(), FinishReason::kStop);
    loop.logits(whole.run(loop.wanted()), on_text);
    EXPECT_TRUE(loop.ended());
  }
  static int schedules() { return std::getenv("SPLIT_LONG") != nullptr ? 1000 : 100; }

  KvPages* tail_pages = nullptr;  // of the text that runs
  int states_compared = 0;        // by their bytes, one a block
  const Tokenizer* tokenizer = nullptr;
  OnText on_text;
  std::function<void(const edge::TextSession&, const edge::SplitCounts&)> after_step;
  bool leaves_lost_cloud = false;
  bool offers = false;     // to the cloud, what the text has here
  bool ends_lost = false;  // a call had no answer: a goodbye may be missing
  bool shares = false;     // rows of prompts, between two texts alike
  std::chrono::microseconds kernel{1000};
};

}  // namespace split::test
