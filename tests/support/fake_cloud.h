// A cloud of edge_client/split that is an object of the test, without sockets: a model with
// sessions, whose calls a test can watch, and make fail.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "edge_client/split/cloud_link.h"
#include "golden_model.h"
#include "run/sequence.h"
#include "run/text/generate.h"
#include "support/states/fill_rows.h"
#include "wire/codes.h"

namespace split::test {

using edge::RemoteError;
// The whole model, some blocks of it in sessions.
class FakeCloud : public edge::CloudLink {
 public:
  explicit FakeCloud(const Golden& golden, std::unique_ptr<Device> device = make_cpu_device(1),
                     const std::optional<ShardOptions>& options = {})
      : model_(*golden.model),
        device_(std::move(device)),
        shard_(*device_, model_, golden.weights(), options.value_or(options_for(model_))),
        batcher_(shard_) {}

  std::vector<float> ask(const edge::Send& send) override {
    switch (send.call) {
      case edge::Send::kOpen:
        open(send.session, send.rows.range);
        return {};
      case edge::Send::kStep:
        return step(send);
      case edge::Send::kFill:
        return fill(send);
      case edge::Send::kForward:
        return forward(send.rows);
      case edge::Send::kLook:
        ++looks;
        return {};
      case edge::Send::kClose:
        forget(send.session);
        return {};
      case edge::Send::kPing:
        return {};
      default:
        throw RemoteError("no lists of texts", 200, "");
    }
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
    Streaming(FakeCloud& cloud, const edge::Stream& asked)
        : cloud_(cloud),
          session_(asked.session),
          prompt_(asked.ids.size() - asked.options.generated),
          loop_(cloud.model_.config(), cloud.tokenizer, asked.ids, asked.options) {
      const Call call(cloud);
      ++cloud.streams;
      cloud.streams_again += asked.again ? 1 : 0;
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
  FinishReason stream(const edge::Stream& asked, const OnToken& on_token) override {
    return stream(asked, on_token, [](const auto& call) { return call(); });
  }
  // Each token within `locked`.
  template <typename Locked>
  FinishReason stream(const edge::Stream& asked, const OnToken& on_token, const Locked& locked) {
    auto streaming = locked([&] { return Streaming(*this, asked); });
    for (;;) {
      const edge::StreamEvent event = locked([&] { return streaming.next(); });
      if (!event.token) return event.finish_reason;
      if (!on_token(*event.token)) return FinishReason::kNone;
    }
  }

  void forget_all() {
    for (auto* sessions : {&sessions_, &elsewhere_}) {
      for (const auto& [id, session] : *sessions) shard_.pages().close(session.sequence);
      sessions->clear();
    }
  }
  // Another server of the same model answers from now on, or the first one again: each has kept
  // its sessions.
  void change_server() { sessions_.swap(elsewhere_); }
  size_t sessions() const { return sessions_.size(); }
  int calls() const { return calls_; }
  Batcher& batcher() { return batcher_; }

  std::function<void(int number)> before_step;                  // of each step; may throw
  std::function<void(const std::string& session)> before_open;  // of each session; may throw
  std::function<void(int number)> before_call, after_call;      // likewise, of each on a session
  std::optional<wire::LoadNote> load() const override { return says; }
  int opened = 0, completed = 0, fills = 0, streams = 0, looks = 0;
  std::optional<wire::LoadNote> says;  // its load
  size_t rows_stepped = 0, rows_again = 0;
  int streams_again = 0;
  bool leaves_snapshots = false;         // behind each step
  const Tokenizer* tokenizer = nullptr;  // of texts that it streams

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
  void open(const std::string& session, const StageRange& range) {
    if (before_open) before_open(session);
    const Call call(*this);
    ++opened;
    if (!sessions_.contains(session)) sessions_[session] = {shard_.pages().open(), range, {}};
    call.done();
  }
  std::vector<float> step(const edge::Send& send) {
    const SequenceRows& rows = send.rows;
    const Call call(*this);
    if (before_step) before_step(++steps_);
    Session& own = find(send.session, rows);
    check(own, rows.past, send.digest);
    EXPECT_LE(rows.range.to, own.range.to);
    rows_stepped += rows.count();
    if (send.again) rows_again += rows.count();
    cut_back(own, rows.past, rows.range.to);
    own.ids.insert(own.ids.end(), rows.tokens.begin(), rows.tokens.end());
    std::vector<float> out = append(batcher_, own.sequence, rows);
    if (leaves_snapshots) leave_snapshot(shard_, own.sequence, rows.range);
    call.done();
    return out;
  }
  std::vector<float> fill(const edge::Send& send) {
    const SequenceRows& rows = send.rows;
    const Call call(*this);
    ++fills;
    Session& own = find(send.session, rows);
    const size_t there = std::min<size_t>(own.ids.size(), shard_.pages().length(own.sequence));
    if (rows.past + rows.count() > there) {
      throw RemoteError("not there", 409, wire::codes::kPositionMismatch);
    }
    check(own, rows.past + rows.count(), send.digest);
    EXPECT_TRUE(
        std::ranges::equal(rows.tokens, std::span(own.ids).subspan(rows.past, rows.count())));
    std::vector<float> out(rows.wanted_count() * shard_.width(rows.range.to));
    send.traffic->bytes_down += out.size() * sizeof(float);
    fill_rows(batcher_, own.sequence, own.ids, rows, out.data());
    call.done();
    return out;
  }
  // Cuts the session's rows back to those of its ids, and computes those again that a state lost.
  void cut_back(Session& own, uint32_t past, Point to) {
    own.ids.resize(past);
    shard_.pages().truncate(own.sequence, past);
    const uint32_t have = shard_.pages().length(own.sequence);
    if (have == past) return;
    append(batcher_, own.sequence,
           {.range = {.to = to},
            .past = have,
            .tokens = std::span(own.ids).subspan(have, past - have),
            .wanted = Wanted::kNone});
  }
  std::vector<float> forward(const SequenceRows& rows) {
    const OneSequence one(shard_.pages());
    return append(batcher_, one.id, rows);
  }
  // A session that has the rows before these in the blocks that they pass.
  Session& find(const std::string& session, const SequenceRows& rows) {
    const auto at = sessions_.find(session);
    if (at == sessions_.end())
      throw RemoteError("no such session", 404, wire::codes::kSessionUnknown);
    const SequenceId sequence = at->second.sequence;
    if (shard_.pages().length(sequence) < rows.past) {
      throw RemoteError("elsewhere", 409, wire::codes::kPositionMismatch);
    }
    const uint32_t have = shard_.pages().filled(sequence, rows.range);
    if (have < rows.past) {
      RemoteError error("not so deep", 409, wire::codes::kDepthMismatch);
      error.have = have;
      throw error;
    }
    return at->second;
  }
  // As the cloud does (cloud_server/routes/session_steps.cpp).
  static void check(const Session& session, uint32_t rows, std::optional<uint64_t> digest) {
    SequenceHistory ids;
    ids.append(session.ids, Phase::kPrompt);
    if (digest && ids.size() >= rows && ids.digest(rows) == *digest) return;
    throw RemoteError("of other ids", 409, wire::codes::kPositionMismatch);
  }
  // Behind ids of which the first `prompt` were given; the session gets the rows that it lacks.
  std::vector<float> last_logits(const std::string& session, std::span<const int32_t> ids,
                                 size_t prompt) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end())
      throw RemoteError("no such session", 404, wire::codes::kSessionUnknown);
    Session& own = found->second;
    const auto [wrong, rest] = std::ranges::mismatch(own.ids, ids);
    KvPages& pages = shard_.pages();
    size_t at = std::min({static_cast<size_t>(wrong - own.ids.begin()), ids.size() - 1,
                          size_t{pages.filled(own.sequence, own.range)}});
    std::vector<float> out;
    while (at < ids.size()) {
      const size_t end = at < prompt ? prompt : ids.size();
      cut_back(own, static_cast<uint32_t>(at), own.range.to);
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
  std::map<std::string, Session> sessions_, elsewhere_;
  int steps_ = 0, calls_ = 0;
};

// One of several ways to a cloud, which is asked by one at a time.
class Way : public edge::CloudLink {
 public:
  Way(FakeCloud& cloud, std::mutex& mutex) : cloud_(cloud), mutex_(mutex) {}
  std::vector<float> ask(const edge::Send& send) override {
    if (send.call == edge::Send::kForward) return cloud_.ask(send);
    const std::lock_guard lock(mutex_);
    return cloud_.ask(send);
  }
  FinishReason stream(const edge::Stream& asked, const OnToken& on_token) override {
    return cloud_.stream(asked, on_token, [this](const auto& call) {
      const std::lock_guard lock(mutex_);
      return call();
    });
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

}  // namespace split::test
