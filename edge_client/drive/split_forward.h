// Drives a TextSession on the caller's thread, which blocks while the cloud answers or streams, the
// tail computes, or time has to pass; and its CutMover, if the cut may move, on a thread beside it
// with a connection of its own. Decides nothing.
#pragma once

#include <condition_variable>
#include <thread>

#include "base/resources/waiter.h"
#include "edge_client/split/cloud_link.h"
#include "edge_client/split/lock_order.h"
#include "edge_client/split/text_session.h"
#include "run/forward.h"

namespace split::edge {

// How the cut of a text moves.
struct Moving {
  MoveOptions options;
  // Opens another connection to the cloud, for work beside the text. Any thread.
  std::function<std::unique_ptr<CloudLink>()> connect;
  // Loads all stages for a text whose cloud is lost; null if impossible. Blocks the text's thread;
  // throws nothing.
  std::function<std::shared_ptr<TailSide>()> rescue = {};
};

// One thread at a time, except where noted.
class SplitForward : public Forward {
 public:
  // Arguments as TextSession's; all but the options outlive it.
  SplitForward(CloudLink& cloud, const Model& model, Cut cut, Batcher* tail,
               const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
               Requester requester = {}, const Moving* moving = nullptr);
  ~SplitForward() override { close(); }
  SplitForward(const SplitForward&) = delete;
  SplitForward& operator=(const SplitForward&) = delete;

  std::span<const float> run(const SequenceRows& rows) override;
  bool gives_top() const override { return text_session_.gives_top(); }
  uint32_t most_rows(uint32_t past) const override;
  bool asks_others() const override { return place().cut != 0; }
  // Exclusive access to the text's session, for calls that wait for nothing.
  struct Held {
    TextSession* operator->() const { return &text_session; }
    Mutex::Lock lock;
    TextSession& text_session;
  };
  Held text_session() { return {Lock(mutex_), text_session_}; }
  // Leaves the prompt's rows to other texts. Call after the text has ended, as the last
  // computation.
  void leave_rows();
  CachedSession keep();
  // Lets the cut move between two tokens, behind `past` rows.
  void meet(uint32_t past);
  // Feeds the loop, of whose ids the first `prompt` were given, with the tokens that the cloud
  // streams, until the text ends or goes on otherwise. Throws as run().
  void stream(TextLoop& loop, size_t prompt, const GenerateOptions& options, const OnText& on_text);

  // Ends the sessions on the server, if there are any.
  void close() noexcept;

  // CutMover::aim() and offer(); no effect if the cut cannot move. Any thread.
  void aim(Cut cut, Batcher* tail, std::shared_ptr<void> keeps) {
    beside([&](CutMover& mover) { mover.aim(cut, tail, std::move(keeps)); });
  }
  void offer(Batcher& tail, std::shared_ptr<void> keeps, const LocalWeights& offer = {}) {
    beside([&](CutMover& mover) { mover.offer(tail, std::move(keeps), offer); });
  }
  // Where the text is now. Any thread.
  struct Place {
    Cut cut;
    uint32_t tokens = 0;  // tokens out
    std::string mover;
  };
  Place place() const;

 private:
  using Lock = Mutex::Lock;
  using OnToken = std::function<bool(const ScoredToken&)>;
  template <typename Call>
  void beside(const Call& call) {
    if (text_session_.mover() == nullptr) return;
    const Lock lock(mutex_);
    call(*text_session_.mover());
    start_mover();
    tell();
  }
  void perform(Flow& flow, CloudLink& cloud, const Action& action, Lock& lock);
  std::optional<Action> perform_stream(Flow& flow, const Stream& stream, const OnToken& on_token,
                                       Lock& lock);
  void drive(Flow& flow, const OnToken& on_token = {});
  CloudLink& link();
  void start_mover();
  void run_mover();
  bool warm_line(Lock& lock);
  void tell();
  void stop_mover() noexcept;

  Waiter& waiter_;
  const Moving* const moving_;
  CloudLink& first_;                         // the text's connection until it has own_
  std::unique_ptr<CloudLink> own_, beside_;  // beside_: the mover's connection
  std::thread thread_;                       // runs the mover
  mutable Mutex mutex_{LockOrder::kText};    // guards the members below, except during an action
  std::condition_variable changed_;
  uint64_t told_ = 0;  // last version of the session that others were woken for
  bool stopping_ = false, asking_ = false;  // the mover: is to end; waits for the cloud
  bool cold_ = false;                       // the text's connection may be closed
  bool warm_ = false;                       // the mover's connection is open
  TextSession text_session_;
};

}  // namespace split::edge
