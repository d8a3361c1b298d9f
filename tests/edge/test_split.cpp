// edge_client/split over a cloud that is an object of this test: driven as the program does, and by
// hand, on one thread with a clock of this test. Linked with common/run and edge_client/drive and
// nothing else, so that what is decided there stays without sockets, files and threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "edge_client/drive/own_turns.h"
#include "edge_client/drive/split_text.h"
#include "support/golden_model.h"

namespace split::test {
namespace {

using edge::RemoteError;

// The whole model, some blocks of it in sessions.
class FakeCloud : public edge::CloudLink {
 public:
  explicit FakeCloud(const Golden& golden)
      : model_(*golden.model),
        device_(make_cpu_device(1)),
        shard_(*device_, model_, golden.weights(), options_for(model_)),
        batcher_(shard_) {}

  void open(const std::string& session, const StageRange& range) override {
    const Call call(*this);
    ++opened;
    if (!sessions_.contains(session)) sessions_[session] = {shard_.pages().open(), range, {}};
    call.done();
  }
  std::vector<float> step(const std::string& session, const SequenceRows& rows,
                          edge::Traffic&) override {
    const Call call(*this);
    if (before_step) before_step(++steps_);
    Session& own = find(session, rows);
    EXPECT_LE(rows.range.to, own.range.to);
    rows_stepped += rows.count();
    shard_.pages().truncate(own.sequence, rows.past);
    own.ids.resize(rows.past);
    own.ids.insert(own.ids.end(), rows.tokens.begin(), rows.tokens.end());
    std::vector<float> out = append(batcher_, own.sequence, rows);
    call.done();
    return out;
  }
  std::vector<float> fill(const std::string& session, const SequenceRows& rows,
                          edge::Traffic& traffic) override {
    const Call call(*this);
    ++fills;
    Session& own = find(session, rows);
    const size_t there = std::min<size_t>(own.ids.size(), shard_.pages().length(own.sequence));
    if (rows.past + rows.count() > there) {
      throw RemoteError("not there", 409, "position_mismatch");
    }
    EXPECT_TRUE(
        std::ranges::equal(rows.tokens, std::span(own.ids).subspan(rows.past, rows.count())));
    std::vector<float> out(rows.wanted_count() * shard_.width(rows.range.to));
    traffic.bytes_down += out.size() * sizeof(float);
    Job job{.sequence = own.sequence, .rows = rows, .out = out.data(), .fill = true};
    batcher_.run(job);
    call.done();
    return out;
  }
  void close(const std::string& session) noexcept override { forget(session); }
  std::vector<float> forward(const SequenceRows& rows, edge::Traffic&) override {
    const SequenceId sequence = shard_.pages().open();
    std::vector<float> out = append(batcher_, sequence, rows);
    shard_.pages().close(sequence);
    return out;
  }
  Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                     const GenerateOptions& options, const OnText& on_text,
                     edge::SplitCounts&) override {
    ++completed;
    LocalForward whole(batcher_);
    return generate(whole, model_.config(), tokenizer, prompt, options, on_text);
  }

  // A text on a session, token by token.
  class Streaming {
   public:
    Streaming(FakeCloud& cloud, std::string session, std::span<const int32_t> ids,
              const GenerateOptions& options)
        : cloud_(cloud),
          session_(std::move(session)),
          prompt_(ids.size() - options.generated),
          loop_(cloud.model_.config(), nullptr, ids, options) {
      const Call call(cloud);
      ++cloud.streams;
      auto& sessions = cloud.sessions_;
      const StageRange range{.to = cloud.model_.config().layers};
      if (!sessions.contains(session_))
        sessions[session_] = {cloud.shard_.pages().open(), range, {}};
      call.done();
    }
    edge::StreamEvent next() {
      const Call call(cloud_);
      if (loop_.ended()) return {{}, loop_.take().finish_reason};
      const std::vector<float> logits = cloud_.last_logits(session_, loop_.ids(), prompt_);
      edge::StreamEvent event;
      loop_.logits(logits, [&](std::string_view, const ScoredToken* token) {
        if (token != nullptr) event.token = *token;
        return true;
      });
      if (!event.token) event.finish_reason = loop_.take().finish_reason;
      call.done();
      return event;
    }

   private:
    FakeCloud& cloud_;
    const std::string session_;
    const size_t prompt_;
    TextLoop loop_;
  };
  std::string stream(const std::string& session, std::span<const int32_t> ids,
                     const GenerateOptions& options, const OnToken& on_token,
                     edge::SplitCounts&) override {
    return stream(session, ids, options, on_token, [](const auto& call) { return call(); });
  }
  // Each token within `locked`.
  template <typename Locked>
  std::string stream(const std::string& session, std::span<const int32_t> ids,
                     const GenerateOptions& options, const OnToken& on_token,
                     const Locked& locked) {
    auto streaming = locked([&] { return Streaming(*this, session, ids, options); });
    for (;;) {
      const edge::StreamEvent event = locked([&] { return streaming.next(); });
      if (!event.token) return event.finish_reason;
      if (!on_token(*event.token)) return "";
    }
  }

  void forget_all() {
    while (!sessions_.empty()) forget(sessions_.begin()->first);
  }
  size_t sessions() const { return sessions_.size(); }
  int calls() const { return calls_; }
  Batcher& batcher() { return batcher_; }

  std::function<void(int number)> before_step;              // of each step; may throw
  std::function<void(int number)> before_call, after_call;  // likewise, of each on a session
  void look() override { ++looks; }
  std::optional<edge::CloudSays> load() const override { return says; }
  int opened = 0, completed = 0, fills = 0, streams = 0, looks = 0;
  std::optional<edge::CloudSays> says;  // of its load
  size_t rows_stepped = 0;

 private:
  struct Call {
    explicit Call(FakeCloud& cloud) : cloud(cloud), number(++cloud.calls_) {
      if (cloud.before_call) cloud.before_call(number);
    }
    void done() const {
      if (cloud.after_call) cloud.after_call(number);
    }
    FakeCloud& cloud;
    const int number;
  };
  struct Session {
    SequenceId sequence = 0;
    StageRange range = {};
    std::vector<int32_t> ids = {};
  };
  // A session that has the rows before these in the blocks that they pass.
  Session& find(const std::string& session, const SequenceRows& rows) {
    const auto at = sessions_.find(session);
    if (at == sessions_.end()) throw RemoteError("no such session", 404, "session_unknown");
    const SequenceId sequence = at->second.sequence;
    if (shard_.pages().length(sequence) < rows.past) {
      throw RemoteError("elsewhere", 409, "position_mismatch");
    }
    const uint32_t have = shard_.pages().filled(sequence, rows.range);
    if (have < rows.past) {
      RemoteError error("not so deep", 409, "depth_mismatch");
      error.have = have;
      throw error;
    }
    return at->second;
  }
  // Behind ids of which the first `prompt` were given; the session gets the rows that it lacks.
  std::vector<float> last_logits(const std::string& session, std::span<const int32_t> ids,
                                 size_t prompt) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) throw RemoteError("no such session", 404, "session_unknown");
    Session& own = found->second;
    const auto [wrong, rest] = std::ranges::mismatch(own.ids, ids);
    KvPages& pages = shard_.pages();
    size_t at = std::min({static_cast<size_t>(wrong - own.ids.begin()), ids.size() - 1,
                          size_t{pages.filled(own.sequence, own.range)}});
    std::vector<float> out;
    while (at < ids.size()) {
      const size_t end = at < prompt ? prompt : ids.size();
      pages.truncate(own.sequence, static_cast<uint32_t>(at));
      out = append(batcher_, own.sequence,
                   {.range = {.to = Point::head()},
                    .past = static_cast<uint32_t>(at),
                    .tokens = ids.subspan(at, end - at),
                    .phase = at < prompt ? Phase::kPrompt : Phase::kGenerate});
      at = end;
    }
    own.ids.assign(ids.begin(), ids.end());
    return out;
  }
  void forget(const std::string& session) {
    const auto at = sessions_.find(session);
    if (at == sessions_.end()) return;
    shard_.pages().close(at->second.sequence);
    sessions_.erase(at);
  }

  const Model& model_;
  std::unique_ptr<Device> device_;
  Shard shard_;
  Batcher batcher_;
  std::map<std::string, Session> sessions_;
  int steps_ = 0, calls_ = 0;
};

// One of several ways to a cloud, which is asked by one at a time.
class Way : public edge::CloudLink {
 public:
  Way(FakeCloud& cloud, std::mutex& mutex) : cloud_(cloud), mutex_(mutex) {}
  void open(const std::string& session, const StageRange& range) override {
    const std::lock_guard lock(mutex_);
    cloud_.open(session, range);
  }
  std::vector<float> step(const std::string& session, const SequenceRows& rows,
                          edge::Traffic& traffic) override {
    const std::lock_guard lock(mutex_);
    return cloud_.step(session, rows, traffic);
  }
  std::vector<float> fill(const std::string& session, const SequenceRows& rows,
                          edge::Traffic& traffic) override {
    const std::lock_guard lock(mutex_);
    return cloud_.fill(session, rows, traffic);
  }
  void close(const std::string& session) noexcept override {
    const std::lock_guard lock(mutex_);
    cloud_.close(session);
  }
  std::string stream(const std::string& session, std::span<const int32_t> ids,
                     const GenerateOptions& options, const OnToken& on_token,
                     edge::SplitCounts&) override {
    return cloud_.stream(session, ids, options, on_token, [this](const auto& call) {
      const std::lock_guard lock(mutex_);
      return call();
    });
  }
  std::vector<float> forward(const SequenceRows& rows, edge::Traffic& traffic) override {
    return cloud_.forward(rows, traffic);
  }
  Generated complete(const Tokenizer* tokenizer, std::span<const int32_t> prompt,
                     const GenerateOptions& options, const OnText& on_text,
                     edge::SplitCounts& counts) override {
    return cloud_.complete(tokenizer, prompt, options, on_text, counts);
  }

 private:
  FakeCloud& cloud_;
  std::mutex& mutex_;
};

// Waits no time.
struct NoTime : Waiter {
  bool interrupted() const override { return ended; }
  bool wait(std::chrono::milliseconds) override {
    ++waits;
    return !ended;
  }
  bool ended = false;
  int waits = 0;
};

// Drives the flows of a text on this thread, with a clock that only waiting moves: what they ask
// for takes its time, and is done at the end of it.
class ByHand {
 public:
  explicit ByHand(FakeCloud& cloud, unsigned seed = 0) : cloud_(cloud), random_(seed) {}

  // Drives the flow to its end, and the lane beside it; or until nobody wants more of its tokens.
  void drive(edge::Course& course, edge::Flow& flow,
             const edge::CloudLink::OnToken& on_token = {}) {
    Doing text{&flow};
    for (;;) {
      go_on(course, text);
      if (std::holds_alternative<edge::Done>(text.action)) return;
      if (course.lane() != nullptr) {
        lane_.flow = &course.lane()->flow();
        go_on(course, lane_);
        go_on(course, text);  // which may have waited for it
        if (std::holds_alternative<edge::Done>(text.action)) return;
      }
      Doing& next = lane_.flow != nullptr && lane_.until < text.until ? lane_ : text;
      CHECK(next.until < edge::Wait::kOnOthers);  // else both wait for ever
      now = std::max(now, next.until);
      if (!finish(next, on_token)) return;
    }
  }
  double ms() const {
    return std::chrono::duration<double, std::milli>(now - edge::Moment()).count();
  }

  std::chrono::microseconds round_trip{50000}, kernel{1000}, token{4000};
  edge::Moment now = {};
  std::vector<edge::Send::Call> sent = {};

 private:
  struct Doing {
    edge::Flow* flow = nullptr;
    edge::Action action = edge::Wait{};
    edge::Moment until = {};
    uint64_t seen = 0;  // version
    bool begun = false;
  };
  // Some time around `about`.
  std::chrono::microseconds some(std::chrono::microseconds about) {
    return about / 2 +
           std::chrono::microseconds(random_() % static_cast<uint64_t>(about.count() + 1));
  }
  // Unless it waits, or what it asked for is not done.
  void go_on(edge::Course& course, Doing& one) {
    while (!one.begun || due(course, one)) {
      one.action = one.flow->next(now);
      one.seen = course.version();
      one.begun = true;
      const auto* const wait = std::get_if<edge::Wait>(&one.action);
      one.until = wait != nullptr ? wait->until : now + some(time_of(one.action));
    }
  }
  bool due(edge::Course& course, const Doing& one) const {
    if (!std::holds_alternative<edge::Wait>(one.action)) return false;
    const auto& wait = std::get<edge::Wait>(one.action);
    const bool hears = wait.hears || wait.until == edge::Wait::kOnOthers;
    return (hears && one.seen != course.version()) || one.until <= now;
  }
  std::chrono::microseconds time_of(const edge::Action& action) const {
    if (std::holds_alternative<edge::NextToken>(action)) return token;
    return std::holds_alternative<edge::Compute>(action) ? kernel : round_trip;
  }
  // False where nobody wants more tokens.
  bool finish(Doing& one, const edge::CloudLink::OnToken& on_token) {
    if (std::holds_alternative<edge::Wait>(one.action)) return true;
    bool more = true;
    try {
      if (const auto* send = std::get_if<edge::Send>(&one.action)) {
        one.flow->give(ask(*send));
        one.flow->hear(cloud_.load());
      } else if (!std::holds_alternative<edge::Compute>(one.action)) {
        if (const auto* begun = std::get_if<edge::Stream>(&one.action)) {
          stream_.emplace(cloud_, begun->session, begun->ids, begun->options);
        }
        const edge::StreamEvent event = stream_->next();
        if (event.token) more = on_token(*event.token);
        one.flow->hear(cloud_.load());
        one.flow->give(event);
      } else {
        const auto& compute = std::get<edge::Compute>(one.action);
        compute.tail->run(*compute.job);
      }
    } catch (...) {
      one.flow->fail(std::current_exception());
    }
    one.begun = false;
    return more;
  }
  std::vector<float> ask(const edge::Send& send) {
    sent.push_back(send.call);
    switch (send.call) {
      case edge::Send::kStep:
        return cloud_.step(send.session, send.rows, *send.traffic);
      case edge::Send::kFill:
        return cloud_.fill(send.session, send.rows, *send.traffic);
      case edge::Send::kLook:
        cloud_.look();
        return {};
      case edge::Send::kClose:
        cloud_.close(send.session);
        return {};
      default:
        EXPECT_EQ(send.call, edge::Send::kOpen);
        cloud_.open(send.session, send.rows.range);
        return {};
    }
  }

  FakeCloud& cloud_;
  std::minstd_rand random_;
  std::optional<FakeCloud::Streaming> stream_;
  Doing lane_;
};

class SplitAlone : public testing::Test {
 protected:
  explicit SplitAlone(const std::string& name = "rand-a") : golden(name) {}
  static GenerateOptions wanted() {
    GenerateOptions options;
    options.max_tokens = 12;
    options.sampling.seed = 3;
    options.ignore_end = true;
    return options;
  }
  int layers() const { return golden.model->config().layers; }
  template <typename Call>
  auto with(const edge::Placement& place, const Call& call) {
    const Model& model = *golden.model;
    std::optional<Shard> shard;
    std::optional<Batcher> tail;
    if (place.local()) {
      shard.emplace(*device, model, golden.weights(), options_for(model, place.range));
      tail.emplace(*shard);
    }
    const edge::RetryOptions retry;
    return call(
        edge::SplitRun{cloud, place, tail ? &*tail : nullptr, model, nullptr, retry, waiter});
  }
  // A text cut there; its head here or on the cloud.
  std::vector<int32_t> text(int cut, bool head_on_cloud = false) {
    edge::Options options;
    options.cut = cut;
    options.head_on_cloud = head_on_cloud;
    return text(edge::place(options, golden.model->config()));
  }
  std::vector<int32_t> text(const edge::Placement& place) {
    return with(place, [&](const edge::SplitRun& run) {
      return generate_text(run, prompt, wanted(), {}, counts).tokens;
    });
  }
  std::vector<int32_t> whole() {
    LocalForward forward(cloud.batcher());
    return generate(forward, golden.model->config(), nullptr, prompt, wanted(), {}).tokens;
  }

  const Golden golden;
  std::vector<int32_t> prompt{5, 11, 2, 40, 33, 17};
  const std::unique_ptr<Device> device = make_cpu_device(1);
  FakeCloud cloud{golden};
  NoTime waiter;
  edge::SplitCounts counts;
};

TEST_F(SplitAlone, EveryCutGivesTheWholeModelsText) {
  const std::vector<int32_t> expected = whole();
  for (int cut = 0; cut <= layers(); ++cut) {
    EXPECT_EQ(text(cut), expected) << cut;
    EXPECT_EQ(text(cut, true), expected) << cut << " with the head on the cloud";
  }
  EXPECT_EQ(cloud.sessions(), 0u);  // each was ended
  EXPECT_EQ(counts.replays, 0u);
  EXPECT_EQ(waiter.waits, 0);
}

TEST_F(SplitAlone, ALostSessionGetsItsRowsAgain) {
  const std::vector<int32_t> expected = whole();
  cloud.before_step = [&](int number) {
    if (number == 5) cloud.forget_all();
  };
  EXPECT_EQ(text(1), expected);
  EXPECT_EQ(counts.replays, 1u);
  EXPECT_EQ(cloud.opened, 2);
  EXPECT_EQ(waiter.waits, 1);
}

TEST_F(SplitAlone, WhatPassesIsAskedForAgainAndWhatDoesNotEndsIt) {
  const std::vector<int32_t> expected = whole();
  cloud.before_step = [&](int number) {
    if (number == 3 || number == 4) throw RemoteError("busy", 503, "busy");
  };
  EXPECT_EQ(text(1), expected);
  EXPECT_EQ(waiter.waits, 2);
  EXPECT_EQ(counts.replays, 0u);
  cloud.before_step = [](int) { throw RemoteError("no", 400, "invalid_request"); };
  EXPECT_THROW(text(1), RemoteError);
  EXPECT_EQ(waiter.waits, 2);
  cloud.before_step = [&](int) {
    waiter.ended = true;
    throw RemoteError("busy", 503, "busy");
  };
  EXPECT_THROW(text(1), RemoteError);
  EXPECT_EQ(waiter.waits, 2);
}

TEST_F(SplitAlone, ACourseIsDrivenByOneThreadAndAnyClock) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(),
              options_for(model, StageRange::from_block(1, Point::head())));
  Batcher tail(shard);
  ByHand hand(cloud);
  {
    edge::Course course(model, 1, &tail, {}, counts);
    TextLoop loop(model.config(), nullptr, prompt, wanted());
    while (!loop.ended()) {
      hand.drive(course, course.run(loop.wanted()));
      loop.logits(course.results(), {});
    }
    EXPECT_EQ(loop.take().tokens, whole());
    using enum edge::Send::Call;
    EXPECT_EQ(hand.sent.size(), 13u);
    EXPECT_EQ(hand.sent[0], kOpen);
    EXPECT_EQ(std::ranges::count(hand.sent, kStep), 12);
    EXPECT_GE(hand.ms(), 13 * 25);
    EXPECT_EQ(course.leave().size(), 1u);
    EXPECT_TRUE(course.leave().empty());
  }
  EXPECT_EQ(shard.pages().in_use(), 0u);
  // Without end busy: the budget is one of that clock.
  cloud.before_step = [](int) { throw RemoteError("busy", 503, "busy"); };
  edge::Course course(model, 1, &tail, {}, counts);
  edge::Flow& flow = course.run({.range = {.to = Point::head()}, .tokens = prompt});
  const double before = hand.ms();
  EXPECT_THROW(hand.drive(course, flow), RemoteError);
  EXPECT_GE(hand.ms() - before, 30000);
  EXPECT_LE(hand.ms() - before, 33000);
  EXPECT_TRUE(flow.done());
}

// Where a text begins, and where it is to be with so many tokens out.
struct Schedule {
  int start = 0;
  std::vector<std::pair<uint32_t, int>> moves;
  bool asked = false;  // the text is asked at these tokens, and moves when it can

  // A few moves to anywhere at rising tokens, the cloud too.
  static Schedule random(std::minstd_rand& random, int layers, int tokens) {
    const auto any_cut = [&] {
      return static_cast<int>(random() % static_cast<unsigned>(layers + 2)) - 1;
    };
    Schedule all{.start = any_cut(), .moves = {}};
    auto at = 1 + static_cast<uint32_t>(random() % 3);
    for (; at < static_cast<uint32_t>(tokens); at += 1 + random() % 6) {
      all.moves.emplace_back(at, any_cut());
    }
    return all;
  }
  std::string text() const {
    std::string out = cat(asked ? "asked " : "", "0:", start);
    for (const auto& [at, cut] : moves) out += cat(",", at, ":", cut);
    return out;
  }
};

// A course that is driven by hand.
class ForwardByHand : public Forward {
 public:
  ForwardByHand(ByHand& hand, edge::Course& course) : hand_(hand), course_(course) {}
  std::span<const float> run(const SequenceRows& rows) override {
    hand_.drive(course_, course_.run(rows));
    return course_.results();
  }
  uint32_t most_rows(uint32_t past) const override { return course_.most_rows(past); }

 private:
  ByHand& hand_;
  edge::Course& course_;
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
  };

  // A text that moves so; each of its logits is the whole model's, and nothing is left of it.
  Result run(const Schedule& schedule, const GenerateOptions& options, unsigned seed = 0) {
    SCOPED_TRACE(schedule.text());
    const Model& model = *golden.model;
    edge::MoveOptions moves{.deepest = 0, .targets = {}, .leaves_lost_cloud = leaves_lost_cloud};
    int lowest = layers();
    const auto include = [&](int cut) {
      moves.deepest = std::max(moves.deepest, cut == edge::Move::kCloud ? layers() : cut);
      if (cut != edge::Move::kCloud) lowest = std::min(lowest, cut);
    };
    include(schedule.start);
    for (const auto& [at, cut] : schedule.moves) {
      if (!schedule.asked) moves.targets.push_back({.cut = cut, .at = at});
      include(cut);
    }
    Shard shard(*device, model, golden.weights(),
                options_for(model, StageRange::from_block(lowest, Point::head())));
    Batcher tail(shard);
    tail_pages = &shard.pages();
    Shard whole_shard(*device, model, golden.weights(), options_for(model));
    Batcher whole_batcher(whole_shard);
    Result result;
    {
      LocalForward whole(whole_batcher);
      ByHand hand(cloud, seed);
      hand.kernel = kernel;
      hand.token = 4 * kernel;
      edge::Course course(model, schedule.start, &tail, {}, result.counts, {}, &moves);
      if (offers) course.lane()->offer(tail, {}, {});
      TextLoop loop(model.config(), nullptr, prompt, options);
      ForwardByHand forward(hand, course);
      std::optional<DraftedRows> rows;
      while (!loop.ended()) {
        const double before = hand.ms();
        for (const auto& [at, cut] : schedule.moves) {
          if (schedule.asked && at == course.tokens_out() + 1) course.lane()->aim({.cut = cut});
        }
        const auto known = static_cast<uint32_t>(loop.ids().size());
        if (known > prompt.size() && !(rows && rows->has(loop))) {
          hand.drive(course, course.meet(known - 1));
        }
        if (course.on_cloud()) {
          rows.reset();
          stream(hand, course, loop, whole, options);
          continue;
        }
        if (!rows) {
          const size_t pending = known > prompt.size() ? 1 : 0;
          rows.emplace(forward, model.config(), loop.ids().first(known - pending), options.drafts);
        }
        const std::span<const float> got = rows->logits(loop);
        if (after_step) after_step(course, result.counts);
        if (course.cut() == 0) result.alone_ms += hand.ms() - before;
        result.slowest_ms = std::max(result.slowest_ms, hand.ms() - before);
        const std::span<const float> expected = whole.run(loop.wanted());
        EXPECT_TRUE(std::ranges::equal(got, expected)) << course.tokens_out();
        result.accepted = rows->accepted();
        loop.logits(expected, {});
      }
      for (const std::string& session : course.leave()) cloud.close(session);
    }
    EXPECT_EQ(shard.pages().in_use(), 0u);
    EXPECT_EQ(cloud.sessions(), 0u);
    EXPECT_EQ(cloud.batcher().pages().in_use(), 0u);
    result.moves = result.counts.moves;
    return result;
  }
  // The tokens that the cloud has: each is the whole model's.
  void stream(ByHand& hand, edge::Course& course, TextLoop& loop, LocalForward& whole,
              const GenerateOptions& options) {
    GenerateOptions rest = options;
    rest.max_tokens = static_cast<int>(loop.left());
    hand.drive(course, course.stream(loop.ids(), prompt.size(), rest),
               [&](const ScoredToken& token) {
                 loop.logits(whole.run(loop.wanted()), {});
                 EXPECT_EQ(token.id, loop.ids().back()) << loop.ids().size();
                 return !loop.ended();
               });
    EXPECT_EQ(course.finish_reason(), "");
  }
  static int schedules() { return std::getenv("SPLIT_LONG") != nullptr ? 1000 : 100; }

  KvPages* tail_pages = nullptr;  // of the text that runs
  std::function<void(const edge::Course&, const edge::SplitCounts&)> after_step;
  bool leaves_lost_cloud = false;
  bool offers = false;  // to the cloud, what the text has here
  std::chrono::microseconds kernel{1000};
};

// Its steps bring no wish of the cloud's any more.
TEST_F(SplitMoves, ATextThatIsAllHereForTheCloudsSakeHearsOfTheEndOfItsLoad) {
  GenerateOptions options = wanted();
  options.max_tokens = 50;
  offers = true;
  kernel = std::chrono::seconds(2);
  for (const int start : {2, edge::Move::kCloud}) {
    cloud.looks = 0;
    cloud.says = {.want = 0};
    after_step = [&](const edge::Course& course, const edge::SplitCounts&) {
      if (course.tokens_out() >= 30) cloud.says = edge::CloudSays();
    };
    const Result got = run({.start = start, .moves = {{UINT32_MAX, 0}}, .asked = true}, options);
    ASSERT_EQ(got.moves.size(), 2u) << start;
    for (const edge::Move& move : got.moves) EXPECT_EQ(move.why, "asked_by_cloud");
    EXPECT_EQ(got.moves[0].to, 0);
    EXPECT_EQ(got.moves[1].to, start);
    EXPECT_GE(got.moves[1].at, 30u);
    // Once in ten seconds, and never from elsewhere.
    EXPECT_GE(cloud.looks, 3);
    EXPECT_LE(cloud.looks, got.alone_ms / 10000 + 1);
  }
}

// It is nobody's hope to go elsewhere.
TEST_F(SplitMoves, ATextThatIsHereForItselfAsksTheCloudNothing) {
  GenerateOptions options = wanted();
  options.max_tokens = 40;
  offers = true;
  kernel = std::chrono::seconds(2);
  const Result got = run({.start = 2, .moves = {{2, 0}}, .asked = true}, options);
  ASSERT_EQ(got.moves.size(), 1u);
  EXPECT_EQ(cloud.looks, 0);
}

TEST_F(SplitMoves, EachWayAndBack) {
  for (int from = edge::Move::kCloud; from <= layers(); ++from) {
    for (int to = edge::Move::kCloud; to <= layers(); ++to) {
      if (from == to) continue;
      const Result got = run({.start = from, .moves = {{4, to}, {8, from}}}, wanted());
      const std::vector<edge::Move>& moves = got.moves;
      EXPECT_EQ(got.counts.replays, 0u);
      ASSERT_EQ(moves.size(), 2u) << from << " " << to;
      EXPECT_EQ(moves[0].at, 4u);
      EXPECT_EQ(moves[0].from, from);
      EXPECT_EQ(moves[0].to, to);
      EXPECT_EQ(moves[0].why, "asked");
      EXPECT_GE(moves[0].rows, from + to == layers() - 1 ? 0 : prompt.size());
      EXPECT_EQ(moves[1].at, 8u);
      EXPECT_EQ(moves[1].to, from);
    }
  }
}

// Rows of wrong guesses that this machine's blocks computed are none when they come back.
TEST_F(SplitMoves, RowsOfWrongGuessesAreGoneWhenATextComesBack) {
  GenerateOptions options = wanted();
  options.max_tokens = 24;
  options.drafts = {.most = kMostDrafts, .always = true};
  // Texts of three ids, where there is always something to guess.
  for (int32_t id = 0; id < 3; ++id) options.sampling.logit_bias.push_back({id, 100});
  for (const int away : {layers(), edge::Move::kCloud}) {
    for (uint32_t at = 2; at <= 12; ++at) {
      options.sampling.seed = at;
      run({.start = 1, .moves = {{at, away}, {at + 7, 1}}, .asked = true}, options, at);
    }
  }
}

// Without a wait, and whether a move is on its way or not.
TEST_F(SplitMoves, ACloudThatIsGoneForGoodIsNoEventWhereAllStagesAreHere) {
  leaves_lost_cloud = true;
  for (const Schedule& schedule :
       std::vector<Schedule>{{2, {{3, 1}, {6, 3}, {9, 0}}}, {3, {{11, 0}}}}) {
    const int first = cloud.calls();
    run(schedule, wanted());
    const int calls = cloud.calls() - first;
    std::ptrdiff_t all_lost = 0;
    for (int at = 1; at <= calls; ++at) {
      SCOPED_TRACE(at);
      const int begun = cloud.calls();
      cloud.before_call = [&, at](int number) {
        if (number - begun < at) return;
        cloud.forget_all();
        throw RemoteError("no answer", 0, "");
      };
      const Result got = run(schedule, wanted());
      ASSERT_FALSE(HasFailure());
      ASSERT_FALSE(got.moves.empty());
      EXPECT_EQ(got.moves.back().to, 0);
      const auto lost = std::ranges::count(got.moves, "cloud_lost", &edge::Move::why);
      EXPECT_LE(lost, 1);  // none where the text had left it
      all_lost += lost;
      EXPECT_LE(got.slowest_ms, 3 * 75);
      cloud.before_call = {};
    }
    EXPECT_GT(all_lost, calls / 2);
  }
}

// As the program drives it: the lane on a thread, and others that look and ask.
TEST_F(SplitMoves, TwoThreadsAndAThirdThatAsksWriteTheSameText) {
  const std::vector<int32_t> expected = SplitAlone::whole();
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(), options_for(model));
  Batcher tail(shard);
  std::mutex mutex;
  Way way(cloud, mutex);
  for (int round = 0; round < (std::getenv("SPLIT_LONG") != nullptr ? 200 : 20); ++round) {
    edge::Moving moving{{.deepest = layers(), .targets = {}},
                        [&] { return std::make_unique<Way>(cloud, mutex); }};
    if (round % 2 == 0) {
      moving.options.targets = {{.cut = 0, .at = 3},
                                {.cut = 3, .at = 5},
                                {.cut = edge::Move::kCloud, .at = 7},
                                {.cut = 1, .at = 9}};
    }
    edge::SplitCounts own;
    edge::SplitForward forward(way, model, 2, &tail, {}, waiter, own, {}, &moving);
    std::atomic<bool> over{false};
    std::thread asker([&] {
      for (int cut = 0; !over; cut = cut == layers() ? edge::Move::kCloud : cut + 1) {
        if (round % 2 == 1) forward.aim(cut, "asked", &tail, {});
        EXPECT_LE(forward.place().tokens, 12u);
        forward.landed();
        std::this_thread::yield();
      }
    });
    TextLoop loop(model.config(), nullptr, prompt, wanted());
    while (!loop.ended()) {
      const auto known = static_cast<uint32_t>(loop.ids().size());
      if (known > prompt.size()) forward.meet(known - 1);
      if (forward.on_cloud()) {
        forward.stream(loop, prompt.size(), wanted(), {});
      } else {
        loop.logits(forward.run(loop.wanted()), {});
      }
    }
    const Generated text = loop.take();
    over = true;
    asker.join();
    ASSERT_EQ(text.tokens, expected) << round;
    if (round % 2 == 0) {
      EXPECT_EQ(own.moves.size(), 4u);
    }
  }
  EXPECT_EQ(cloud.sessions(), 0u);
  EXPECT_EQ(shard.pages().in_use(), 0u);
}

TEST_F(SplitMoves, TheTokenBehindAMoveWaitsForNothingOfTheNextOne) {
  size_t seen = 0;
  after_step = [&](const edge::Course& course, const edge::SplitCounts& counts) {
    if (counts.moves.size() == seen) return;
    seen = counts.moves.size();
    EXPECT_EQ(course.lane()->state(), "idle") << seen;
  };
  EXPECT_EQ(run({.start = 2, .moves = {{4, 1}, {7, 3}, {10, 0}}}, wanted()).moves.size(), 3u);
  EXPECT_EQ(seen, 3u);
  // Where the next one is due at the same token nobody waits for that.
  after_step = {};
  EXPECT_EQ(run({.start = 2, .moves = {{4, 1}, {4, 3}, {4, 0}}}, wanted()).moves.size(), 3u);
}

TEST_F(SplitMoves, AStepBehindAStreamFindsItsConnectionOpen) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(),
              options_for(model, StageRange::from_block(layers(), Point::head())));
  Batcher tail(shard);
  std::mutex mutex;
  std::atomic<bool> warmed = false, stepped_warm = false;
  struct Warmed : Way {
    Warmed(FakeCloud& cloud, std::mutex& mutex, std::atomic<bool>& warmed, std::atomic<bool>& used)
        : Way(cloud, mutex), warmed(warmed), used(used) {}
    void warm() noexcept override { warmed = own = true; }
    std::vector<float> step(const std::string& session, const SequenceRows& rows,
                            edge::Traffic& traffic) override {
      used = used || own;
      return Way::step(session, rows, traffic);
    }
    std::atomic<bool>&warmed, &used;
    bool own = false;
  };
  Way way(cloud, mutex);
  const edge::Moving moving{{.deepest = layers(), .targets = {{.cut = layers(), .at = 4}}}, [&] {
                              return std::make_unique<Warmed>(cloud, mutex, warmed, stepped_warm);
                            }};
  edge::SplitForward forward(way, model, edge::Move::kCloud, &tail, {}, waiter, counts, {},
                             &moving);
  TextLoop loop(model.config(), nullptr, prompt, wanted());
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!loop.ended()) {
    const auto known = static_cast<uint32_t>(loop.ids().size());
    if (known > prompt.size()) forward.meet(known - 1);
    if (!forward.on_cloud()) {
      loop.logits(forward.run(loop.wanted()), {});
      continue;
    }
    forward.stream(loop, prompt.size(), wanted(), [&](std::string_view, const ScoredToken*) {
      while (!warmed && std::chrono::steady_clock::now() < patience) std::this_thread::yield();
      return true;
    });
  }
  EXPECT_EQ(counts.moves.size(), 1u);
  EXPECT_TRUE(stepped_warm);
}

// A text that runs here alone makes fifty tokens in a round trip: its lane comes near only where it
// waits. What is asked for beside a text costs it no more than the rows that came meanwhile.
TEST_F(SplitMoves, ATextThatIsAskedWaitsForNothing) {
  const Result away = run({.start = 0, .moves = {{2, 3}}, .asked = true}, wanted());
  EXPECT_TRUE(away.moves.empty());
  const Result here = run({.start = 3, .moves = {{2, 0}}, .asked = true}, wanted());
  ASSERT_EQ(here.moves.size(), 1u);
  EXPECT_GT(here.moves[0].at, 2u);
  EXPECT_LE(here.slowest_ms, 2 * 75 + 20);  // the session's opening, and a step
  EXPECT_LE(here.moves[0].pause_ms, 20);
}

// A stage that landed is left again where the text is too slow there, and not gone to a second
// time.
TEST_F(SplitMoves, ATextThatIsTooSlowWhereAStageLandedGoesBack) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(), options_for(model));
  Batcher tail(shard);
  GenerateOptions options = wanted();
  options.max_tokens = 100;
  edge::SplitCounts own;
  const edge::MoveOptions moves{.deepest = layers(), .targets = {}, .pace = 10};
  {
    ByHand hand(cloud);
    hand.round_trip = std::chrono::milliseconds(150);  // 7 tokens a second over a cut
    edge::Course course(model, edge::Move::kCloud, &tail, {}, own, {}, &moves);
    TextLoop loop(model.config(), nullptr, prompt, options);
    const std::vector<int32_t> expected = [&] {
      LocalForward forward(cloud.batcher());
      return generate(forward, model.config(), nullptr, prompt, options, {}).tokens;
    }();
    while (!loop.ended()) {
      const auto known = static_cast<uint32_t>(loop.ids().size());
      if (known > prompt.size()) hand.drive(course, course.meet(known - 1));
      if (course.on_cloud()) {
        GenerateOptions rest = options;
        rest.max_tokens = static_cast<int>(loop.left());
        hand.drive(course, course.stream(loop.ids(), prompt.size(), rest),
                   [&](const ScoredToken& token) {
                     loop.token(token, {});
                     if (loop.ids().size() == 16) course.lane()->aim({.cut = 3, .why = "landed"});
                     if (loop.ids().size() == 70) course.lane()->aim({.cut = 2, .why = "landed"});
                     return !loop.ended();
                   });
      } else {
        hand.drive(course, course.run(loop.wanted()));
        loop.logits(course.results(), {});
      }
    }
    EXPECT_EQ(loop.take().tokens, expected);
    for (const std::string& session : course.leave()) cloud.close(session);
  }
  ASSERT_EQ(own.moves.size(), 2u);
  EXPECT_EQ(own.moves[0].why, "landed");
  EXPECT_EQ(own.moves[0].to, 3);
  EXPECT_EQ(own.moves[1].why, "goal");
  EXPECT_EQ(own.moves[1].to, edge::Move::kCloud);
}

// Texts that the cloud streams, and that would be foreseen to take 10 ms a token here.
class SplitForSpeed : public SplitMoves {
 protected:
  static constexpr double kHere = 10;  // ms
  static constexpr std::chrono::milliseconds kQuick{4}, kSlow{40};

  // A token of the text comes so late as `comes` says of the tokens that there are.
  std::vector<edge::Move> run(const std::function<std::chrono::microseconds(size_t out)>& comes,
                              const std::function<void(size_t, edge::Lane&)>& beside = {}) {
    const Model& model = *golden.model;
    Shard shard(*device, model, golden.weights(), options_for(model));
    Batcher tail(shard);
    GenerateOptions options = wanted();
    options.max_tokens = 50;
    edge::MoveOptions moves{.deepest = layers(), .targets = {}};
    moves.stays = [&](const edge::Quicker& there, double token_ms) {
      EXPECT_EQ(there.cut, 0);
      EXPECT_EQ(there.token_ms, kHere);
      stayed.push_back(token_ms);
    };
    edge::SplitCounts own;
    ByHand hand(cloud);
    hand.round_trip = std::chrono::milliseconds(1);
    hand.kernel = kernel;
    edge::Course course(model, edge::Move::kCloud, here_before ? &tail : nullptr, {}, own, {},
                        &moves);
    course.lane()->offer(tail, {}, edge::Quicker{0, kHere});
    TextLoop loop(model.config(), nullptr, prompt, options);
    const auto out = [&] { return loop.ids().size() - prompt.size(); };
    const auto seen = [&] {
      hand.token = comes(out());
      if (beside) beside(out(), *course.lane());
    };
    while (!loop.ended()) {
      const auto known = static_cast<uint32_t>(loop.ids().size());
      if (known > prompt.size()) hand.drive(course, course.meet(known - 1));
      seen();
      if (course.on_cloud()) {
        GenerateOptions rest = options;
        rest.max_tokens = static_cast<int>(loop.left());
        hand.drive(course, course.stream(loop.ids(), prompt.size(), rest),
                   [&](const ScoredToken& token) {
                     loop.token(token, {});
                     seen();
                     return !loop.ended();
                   });
      } else {
        hand.drive(course, course.run(loop.wanted()));
        loop.logits(course.results(), {});
      }
    }
    LocalForward whole(cloud.batcher());
    EXPECT_EQ(loop.take().tokens,
              generate(whole, model.config(), nullptr, prompt, options, {}).tokens);
    for (const std::string& session : course.leave()) cloud.close(session);
    return own.moves;
  }
  std::vector<double> stayed;
  bool here_before = false;  // the weights, when the text begins
};

TEST_F(SplitForSpeed, ATextStaysWhileItsOwnTokensAreQuickerAndLeavesWhenTheyAreNot) {
  EXPECT_TRUE(run([](size_t) { return kQuick; }).empty());
  ASSERT_EQ(stayed.size(), 1u);  // said once
  EXPECT_NEAR(stayed[0], 4, 1.5);
  // Equal speeds are no reason to go, nor is a tenth less.
  EXPECT_TRUE(run([](size_t) { return std::chrono::milliseconds(9); }).empty());
  const std::vector<edge::Move> moves = run([](size_t out) { return out < 20 ? kQuick : kSlow; });
  ASSERT_EQ(moves.size(), 1u);
  EXPECT_EQ(moves[0].why, "fastest");
  EXPECT_EQ(moves[0].from, edge::Move::kCloud);
  EXPECT_EQ(moves[0].to, 0);
  EXPECT_GE(moves[0].at, 22u);
  EXPECT_LE(moves[0].at, 40u);
  // It goes as soon as it is known that they never were.
  stayed.clear();
  const std::vector<edge::Move> early = run([](size_t) { return kSlow; });
  ASSERT_EQ(early.size(), 1u);
  EXPECT_LE(early[0].at, 20u);
  EXPECT_TRUE(stayed.empty());
}

TEST_F(SplitForSpeed, OneLateTokenIsNoReasonToGo) {
  const auto late_at = [](size_t at) {
    return [at](size_t out) { return out == at ? std::chrono::milliseconds(2000) : kQuick; };
  };
  for (const size_t at : {0, 1, 3, 9, 30}) EXPECT_TRUE(run(late_at(at)).empty()) << at;
}

TEST_F(SplitForSpeed, WhatTheCloudOrSomebodyAsksForDoesNotWait) {
  const auto quick = [](size_t) { return kQuick; };
  here_before = true;
  const std::vector<edge::Move> asked = run(quick, [](size_t out, edge::Lane& lane) {
    if (out == 20) lane.aim({.cut = 0});
  });
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].why, "asked");
  EXPECT_LE(asked[0].at, 30u);
  const std::vector<edge::Move> wished = run(quick, [this](size_t out, edge::Lane&) {
    if (out == 20) cloud.says = edge::CloudSays{.want = 2};
  });
  ASSERT_GE(wished.size(), 1u);
  EXPECT_EQ(wished[0].why, "asked_by_cloud");
  EXPECT_EQ(wished[0].to, 2);
  EXPECT_LE(wished[0].at, 30u);
  // A text that is slow, and about to go, goes where the cloud wants it first.
  cloud.says = edge::CloudSays();
  kernel = std::chrono::milliseconds(150);
  const std::vector<edge::Move> both = run([](size_t) { return kSlow; },
                                           [this](size_t, edge::Lane& lane) {
                                             if (!lane.idle())
                                               cloud.says = edge::CloudSays{.want = 2};
                                           });
  ASSERT_GE(both.size(), 1u);
  EXPECT_EQ(both[0].why, "asked_by_cloud");
  EXPECT_EQ(both[0].to, 2);
}

class SplitMovesOf : public SplitMoves, public testing::WithParamInterface<const char*> {
 protected:
  SplitMovesOf() : SplitMoves(GetParam()) {}
};

TEST_P(SplitMovesOf, AnyScheduleGivesTheWholeModelsLogits) {
  std::minstd_rand random(5);
  const bool demo = GetParam() == std::string("demo");
  const auto context = static_cast<unsigned>(golden.model->config().context);
  const auto vocab = static_cast<unsigned>(golden.model->config().vocab);
  size_t moved = 0, accepted = 0;
  for (int n = 0; n < schedules() / (demo ? 20 : 3); ++n) {
    GenerateOptions options = wanted();
    options.max_tokens = static_cast<int>(std::min(24u, context / 2));
    options.sampling.seed = static_cast<uint64_t>(n);
    if (n % 2 == 0) options.sampling.temperature = 0;
    prompt.resize(1 + random() % std::min(300u, context / 2));
    for (int32_t& id : prompt) id = static_cast<int32_t>(random() % vocab);
    Schedule schedule = Schedule::random(random, layers(), options.max_tokens);
    schedule.asked = n % 3 == 2;
    if (n % 4 >= 2) options.drafts = {.most = kMostDrafts, .always = true};
    const Result got = run(schedule, options, static_cast<unsigned>(n));
    EXPECT_EQ(got.counts.replays, 0u);
    moved += got.moves.size();
    accepted += got.accepted;
    for (const edge::Move& move : got.moves) {
      const bool due = std::ranges::find(schedule.moves, move.at,
                                         &std::pair<uint32_t, int>::first) != schedule.moves.end();
      EXPECT_TRUE(schedule.asked || due) << move.at;  // drafts end there
    }
    ASSERT_FALSE(HasFailure()) << n;
  }
  EXPECT_GT(moved, 0u);
  EXPECT_GT(accepted, 0u);
}

INSTANTIATE_TEST_SUITE_P(Models, SplitMovesOf,
                         testing::Values("rand-a", "rand-b", "rand-c", "demo"));

// Something goes wrong once, before or behind any of the calls of a text that moves.
TEST_F(SplitMoves, AFaultAnywhereLosesAndDoublesNoToken) {
  struct Fault {
    const char* what;
    bool before;
    std::function<void()> happen;
  };
  const std::vector<Fault> faults = {
      {"busy", true, [] { throw RemoteError("busy", 503, "busy"); }},
      {"the line breaks", true, [] { throw RemoteError("no answer", 0, ""); }},
      {"the answer is lost", false, [] { throw RemoteError("no answer", 0, ""); }},
      {"the server starts again", true, [&] { cloud.forget_all(); }},
      {"and behind the answer", false, [&] { cloud.forget_all(); }},
      {"its device is lost", true, [&] { cloud.batcher().shard().pages().forget(); }},
      {"our device is lost", true, [&] { tail_pages->forget(); }},
      {"and behind the answer", false, [&] { tail_pages->forget(); }},
  };
  for (int32_t id = 0; id < 34; ++id) prompt.push_back(id);
  const std::vector<Schedule> all = {
      {2, {{3, 1}, {6, 3}, {9, 0}}},
      {0, {{2, 2}, {6, 1}}},
      {3, {{1, 0}, {5, 3}}},
      {edge::Move::kCloud, {{2, 1}, {6, edge::Move::kCloud}, {9, 0}}}};
  size_t runs = 0;
  for (const Schedule& schedule : all) {
    const int first = cloud.calls();
    run(schedule, wanted());
    const int calls = cloud.calls() - first;
    for (const Fault& fault : faults) {
      for (int at = 1; at <= calls; ++at) {
        SCOPED_TRACE(cat(fault.what, " at call ", at));
        ++runs;
        const int begun = cloud.calls();
        const auto maybe = [&, at](bool before) {
          return [&, at, before](int number) {
            if (before == fault.before && number - begun == at) fault.happen();
          };
        };
        cloud.before_call = maybe(true);
        cloud.after_call = maybe(false);
        const Result got = run(schedule, wanted(), static_cast<unsigned>(at));
        // A text that runs in one place waits for nothing and may end before a lane tries again.
        const bool alone = schedule.start <= 0 || schedule.moves[0].second == 0;
        EXPECT_LE(got.moves.size(), schedule.moves.size());
        EXPECT_GE(got.moves.size(), alone ? 0 : schedule.moves.size());
        ASSERT_FALSE(HasFailure());
      }
    }
    cloud.before_call = cloud.after_call = {};
  }
  EXPECT_GT(runs, 200u);
}

// Turns of a chat, each of which is the last one and more.
class SplitTurns : public SplitAlone {
 protected:
  struct Turn {
    std::vector<int32_t> tokens;
    edge::SplitCounts counts;
    size_t rows_sent = 0;
  };
  SplitTurns() {
    prompt.clear();
    for (int32_t i = 0; i < 20; ++i) prompt.push_back((i * 37 + 5) % 300);
  }
  Turn turn(edge::SplitRun run, const std::string& owner, std::span<const int32_t> ids,
            bool phases_alike = true) {
    const edge::TurnsOf own{turns, owner, phases_alike};
    run.turns = &own;
    Turn made;
    const size_t before = cloud.rows_stepped;
    edge::SplitText text(run, ids, wanted(), made.counts);
    while (text.next({})) continue;
    made.tokens = text.take().tokens;
    text.keep();
    made.rows_sent = cloud.rows_stepped - before;
    return made;
  }
  std::vector<int32_t> whole(std::span<const int32_t> ids) {
    LocalForward forward(cloud.batcher());
    return generate(forward, golden.model->config(), nullptr, ids, wanted(), {}).tokens;
  }
  // Adds what a user says behind these.
  std::vector<int32_t> next_of(std::vector<int32_t> ids, const std::vector<int32_t>& said) {
    ids.insert(ids.end(), said.begin(), said.end());
    ids.insert(ids.end(), {7, 8, 9});
    return ids;
  }
  edge::Placement cut_at(int cut, bool head_on_cloud = false) {
    edge::Options options;
    options.cut = cut;
    options.head_on_cloud = head_on_cloud;
    return edge::place(options, golden.model->config());
  }

  edge::OwnTurns turns{[this](const std::string& session) { cloud.close(session); }};
};

TEST_F(SplitTurns, ANextTurnComputesAndSendsItsOwnRowsAlone) {
  for (int cut = 0; cut <= layers(); ++cut) {
    for (const bool head_on_cloud : {false, true}) {
      with(cut_at(cut, head_on_cloud), [&](const edge::SplitRun& run) {
        const Turn first = turn(run, "me", prompt);
        EXPECT_EQ(first.tokens, whole(prompt));
        EXPECT_EQ(first.counts.kept_rows, 0u);
        const std::vector<int32_t> ids = next_of(prompt, first.tokens);
        const Turn second = turn(run, "me", ids);
        EXPECT_EQ(second.tokens, whole(ids)) << "cut " << cut;
        // All but the last token was computed; twelve follow, of which the last is not.
        EXPECT_EQ(second.counts.kept_rows, 20u + 11) << "cut " << cut;
        EXPECT_EQ(second.rows_sent, cut == 0 ? 0 : 1u + 3 + 11) << "cut " << cut;
        EXPECT_EQ(second.counts.cloud_layer_rows, second.rows_sent * static_cast<size_t>(cut));
        // The same words again share the prompt, but for its last row.
        const Turn again = turn(run, "me", ids);
        EXPECT_EQ(again.tokens, second.tokens);
        EXPECT_EQ(again.counts.kept_rows, ids.size() - 1);
        turns.drop_all();
      });
      EXPECT_EQ(cloud.sessions(), 0u);
    }
  }
  EXPECT_EQ(cloud.batcher().pages().in_use(), 0u);
}

TEST_F(SplitTurns, RowsAreOfTheirOwnersTextsAlone) {
  with(cut_at(1), [&](const edge::SplitRun& run) {
    const Turn first = turn(run, "me", prompt);
    const std::vector<int32_t> ids = next_of(prompt, first.tokens);
    const Turn other = turn(run, "you", ids);
    EXPECT_EQ(other.counts.kept_rows, 0u);
    EXPECT_EQ(other.rows_sent, ids.size() + 11);
    const Turn own = turn(run, "me", ids);
    EXPECT_EQ(own.counts.kept_rows, 31u);
    EXPECT_EQ(own.tokens, other.tokens);
    turns.drop_all();
  });
}

TEST_F(SplitTurns, GeneratedRowsAreAPromptsWhereThePhasesAreAlikeAlone) {
  with(cut_at(1), [&](const edge::SplitRun& run) {
    const std::vector<int32_t> ids = next_of(prompt, turn(run, "me", prompt).tokens);
    const Turn second = turn(run, "me", ids, false);
    EXPECT_EQ(second.counts.kept_rows, 20u);
    EXPECT_EQ(second.tokens, whole(ids));
    turns.drop_all();
  });
}

TEST_F(SplitTurns, ATextThatPartsEarlyGoesOnFromWhereItParts) {
  with(cut_at(1), [&](const edge::SplitRun& run) {
    turn(run, "me", prompt);
    std::vector<int32_t> ids = prompt;
    ids[17] = 1;
    const Turn near = turn(run, "me", ids);
    EXPECT_EQ(near.counts.kept_rows, 17u);
    EXPECT_EQ(near.tokens, whole(ids));
    ids[15] = 1;  // with fewer in common they are not worth it
    EXPECT_EQ(turn(run, "me", ids).counts.kept_rows, 0u);
    turns.drop_all();
  });
}

TEST_F(SplitTurns, ASessionThatIsGoneGetsItsRowsAgain) {
  with(cut_at(2), [&](const edge::SplitRun& run) {
    const std::vector<int32_t> ids = next_of(prompt, turn(run, "me", prompt).tokens);
    cloud.forget_all();
    const Turn second = turn(run, "me", ids);
    EXPECT_EQ(second.tokens, whole(ids));
    EXPECT_EQ(second.counts.replays, 1u);
    EXPECT_EQ(second.rows_sent, ids.size() + 11);
    turns.drop_all();
  });
}

TEST_F(SplitTurns, GoOnWhereTheLastTextEndedAfterItsMoves) {
  const Model& model = *golden.model;
  Shard shard(*device, model, golden.weights(), options_for(model));
  Batcher tail(shard);
  std::mutex mutex;
  Way way(cloud, mutex);
  const edge::RetryOptions retry;
  edge::Options whole_there;
  whole_there.all_on_cloud = true;
  const edge::Placement there = edge::place(whole_there, model.config()), here = cut_at(0);
  edge::Moving moving;
  moving.options.deepest = layers();
  moving.connect = [&] { return std::make_unique<Way>(cloud, mutex); };
  edge::SplitRun streamed{way, there, &tail, model, nullptr, retry, waiter};
  streamed.moving = &moving;
  const edge::SplitRun alone{way, here, &tail, model, nullptr, retry, waiter};

  // Streamed twice: the session has the rows.
  std::vector<int32_t> ids = next_of(prompt, turn(streamed, "me", prompt).tokens);
  const Turn second = turn(streamed, "me", ids);
  EXPECT_EQ(second.tokens, whole(ids));
  EXPECT_EQ(second.counts.kept_rows, 31u);
  EXPECT_EQ(cloud.sessions(), 1u);

  // On its way here: then this machine has them, and the session is ended.
  ids = next_of(prompt, {1});
  moving.options.targets = {{.cut = 0, .at = 4}};
  const Turn moved = turn(streamed, "me", ids);
  EXPECT_EQ(moved.tokens, whole(ids));
  ASSERT_EQ(moved.counts.moves.size(), 1u);
  ids = next_of(ids, moved.tokens);
  const Turn own = turn(alone, "me", ids);
  EXPECT_EQ(own.tokens, whole(ids));
  EXPECT_EQ(own.counts.kept_rows, 24u + 11);
  EXPECT_EQ(own.rows_sent, 0u);
  turns.drop_all();
  EXPECT_EQ(cloud.sessions(), 0u);
  EXPECT_EQ(shard.pages().in_use(), 0u);
}

TEST_F(SplitTurns, AreFewAndTheOldestGivesWay) {
  with(cut_at(1), [&](const edge::SplitRun& run) {
    std::vector<int32_t> ids = prompt;
    for (int32_t i = 0; i < 6; ++i) {
      ids[0] = i;
      turn(run, "me", ids);
      EXPECT_EQ(turns.size(), std::min<size_t>(static_cast<size_t>(i) + 1, edge::KeptTurns::kMost));
      EXPECT_EQ(cloud.sessions(), turns.size());
    }
    EXPECT_EQ(turn(run, "me", ids).counts.kept_rows, 19u);
    ids[0] = 1;
    EXPECT_EQ(turn(run, "me", ids).counts.kept_rows, 0u) << "it gave way";
    // Those on another tail would hold its weights.
    turns.stay_on(nullptr);
    EXPECT_EQ(turns.size(), 0u);
    EXPECT_EQ(run.tail->pages().in_use(), 0u);
    turn(run, "me", ids);
    EXPECT_EQ(turns.size(), 0u);
  });
  EXPECT_EQ(cloud.sessions(), 0u);
}

TEST_F(SplitTurns, GiveWayToATextThatGetsNoPages) {
  const Model& model = *golden.model;
  const edge::Placement place = cut_at(1);
  ShardOptions small = options_for(model, place.range);
  small.kv_bytes = kv_bytes_for(model, place.range, Profile::kF32, 1);  // of one whole context
  Shard shard(*device, model, golden.weights(), small);
  Batcher tail(shard);
  tail.on_pages_spent([&] { return turns.make_room(tail); });
  const edge::RetryOptions retry;
  const edge::SplitRun run{cloud, place, &tail, model, nullptr, retry, waiter};
  turn(run, "me", prompt);
  std::vector<int32_t> other = prompt;
  other[0] = 1;
  other.resize(50, 2);  // with its text more than half of the pages
  const Turn made = turn(run, "me", other);
  EXPECT_EQ(made.tokens, whole(other));
  EXPECT_EQ(turns.size(), 1u);
  turns.drop_all();
  EXPECT_EQ(shard.pages().in_use(), 0u);
}

TEST_F(SplitAlone, WithAllOnTheCloudItIsAskedForTheText) {
  edge::Placement place;
  place.all_on_cloud = true;
  EXPECT_EQ(text(place), whole());
  EXPECT_EQ(cloud.completed, 1);
  EXPECT_EQ(cloud.opened, 0);
}

TEST_F(SplitAlone, FinalStatesAreTheSameOnEitherSide) {
  const auto states = [&](const edge::Placement& place) {
    return with(place,
                [&](const edge::SplitRun& run) { return final_states(run, prompt, counts); });
  };
  edge::Placement there;
  there.all_on_cloud = true;
  edge::Options options;
  options.cut = 1;
  options.embed = true;
  EXPECT_EQ(states(edge::place(options, golden.model->config())), states(there));
}

// The vocabulary's matrix is as large as five blocks here.
TEST(Placement, AHeadOfMoreThanThreeBlocksStaysOnTheCloud) {
  const auto model = [](int vocab) {
    return make_model(cat(R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 16, "n_head": 2,
        "n_positions": 8, "vocab_size": )",
                          vocab, "}"));
  };
  edge::Options options;
  options.cut = 2;
  const edge::Placement far = edge::place(options, *model(1000));
  EXPECT_TRUE(far.head_on_cloud);
  EXPECT_EQ(far.range, (StageRange{2, 4}));
  EXPECT_EQ(edge::head_line(far),
            "the vocabulary's matrix is as large as 5 blocks and stays on the cloud (--head "
            "edge)\n");
  const auto here = [&](const edge::Placement& place) {
    EXPECT_FALSE(place.head_on_cloud);
    EXPECT_EQ(edge::head_line(place), "");
  };
  here(edge::place(options, *model(500)));
  options.head_given = true;
  here(edge::place(options, *model(1000)));
  options.head_given = false;
  options.cut = 0;
  here(edge::place(options, *model(1000)));
}

}  // namespace
}  // namespace split::test
