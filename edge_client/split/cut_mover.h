// Moves the cut of a running text. It prepares a target beside the text: blocks that change sides
// get their rows by fills, which compute missing rows again, so that no key and no value travels.
// Then the text switches at a token, with the few rows that came meanwhile. Failures here are
// retried and cost the text nothing. place/decision.h decides where to go. Runs as a flow (flow.h)
// beside the text's own.
#pragma once

#include <atomic>
#include <deque>
#include <optional>
#include <string>

#include "edge_client/place/text_place.h"
#include "edge_client/split/backoff.h"
#include "edge_client/split/sides.h"

namespace split::edge {

// A cut to move to.
struct Target {
  Cut cut;
  Why why = Why::kAsked;
  std::optional<uint32_t> at = {};  // tokens out at which the text waits for it; none: as soon as
                                    // possible
  std::shared_ptr<TailSide> tail = {};  // null: the present one
};

// How a text's cut may move.
struct MoveOptions {
  Cut deepest;                 // the cloud opens sessions for it
  std::deque<Target> targets;  // one after the other
  // Whether a text goes on with all stages here instead of waiting for a lost cloud: at once if
  // they are loaded; else after a while, if possible (Rescue).
  bool leaves_lost_cloud = false;
  // The cut moves no more once that is set; null: never.
  std::shared_ptr<const std::atomic<bool>> ends = {};
  double pace = 0;  // tokens/s that a text keeps at least where it moves to landed weights
  std::chrono::milliseconds between{3000};  // PlaceInput says between what
  std::chrono::milliseconds between_wishes{10000};
  // Called once, with the time of the text's own tokens, if they are too quick for it to leave.
  std::function<void(const FasterCut& there, double token_ms)> stays = {};
};

// One thread at a time.
class CutMover {
 public:
  // Rows that the tail computes in one job, which blocks the text's own steps.
  static constexpr uint32_t kSliceRows = 16;
  // Rows that a target may lack and count as ready, so that a few tokens later a step can still
  // bring them.
  static constexpr uint32_t kEnough = SplitState::kMostLag / 2;

  CutMover(SplitState& sides, const MoveOptions& options, const RetryOptions& retry);

  Flow& flow() { return flow_; }
  // Replaces all remaining targets by this cut, on request. The cloud needs no tail; other cuts use
  // the present tail, or `tail`, a part of `keeps`, if that lacks the stages.
  void aim(Cut cut, Batcher* tail = nullptr, std::shared_ptr<void> keeps = {});
  // Sets how long the text may be (TextPlace::expect()).
  void expect(uint32_t most, std::optional<uint32_t> alike) { place_.expect(most, alike); }
  // Notes that the text has so many tokens out; it may choose another target.
  void token(uint32_t out, Moment now);
  // Whether nothing is left to do before the next aim().
  bool idle() const { return !target_ && ended_.empty() && !place_.in.fled_from; }
  // Lets the text go on on this tail, a part of `keeps`.
  void offer(Batcher& tail, std::shared_ptr<void> keeps, const LocalWeights& offer);
  // The lowest cut from which the text could go on here; none: nowhere else.
  std::optional<int> can() const;
  // Sets the cloud's wish: this cut or a lower one, or none, and then the text goes back. A text
  // whose cut was named stays.
  void wish(std::optional<int> want);

  // Whether the target has work for the cloud, so that a connection is of use.
  bool wants_line() const { return target_ && target_->cut > 0; }

  // Whether the text, with so many tokens out, can switch now.
  bool can_switch(uint32_t out, Moment now) const;
  // Whether the text is to wait for the switch: the target is due and makes progress.
  bool is_waited_for(uint32_t out) const;
  // Moves the cut. The target lacks no more rows than the lag (sides.h).
  Move take(uint32_t out, Moment now);
  // Tokens until the target is due; UINT32_MAX if it has no token of its own.
  uint32_t tokens_until_due(uint32_t out) const;
  // Returns what is known here of a text that loses its cloud.
  LossInput loss() const {
    return {.cut = sides_.cut,
            .leaves = options_.leaves_lost_cloud && !stays(),
            .whole = whole() != nullptr,
            .in_vain = is_beyond_rescue_};
  }
  // Sets the result of a rescue; null: no other is tried before the cloud answers again.
  void rescued(std::shared_ptr<TailSide> whole);
  void cloud_answered() { is_beyond_rescue_ = false; }
  // Moves the text here at once: the tail lacks `rows`, which it computes as after a lost device.
  // The text returns once the cloud answers, if its tokens were quicker there.
  Move leave_cloud(uint32_t out, uint32_t rows);
  // Returns the costs of preparing moves since the last call.
  SplitCounts take_counts();

  // "idle", "weights", "filling 128/512", "waiting" or "ready".
  std::string state() const;
  // Returns the sessions to end on the server, once.
  std::vector<std::string> leave();

 private:
  enum class State : uint8_t { kIdle, kWeights, kFilling, kReady, kWaiting };
  Task<void> run();
  Task<void> close_old();
  bool stays() const { return options_.ends && *options_.ends; }
  bool hopes() const;
  Task<void> look();
  Task<void> prepare();
  Task<void> fill_tail(SequenceRows piece);
  Task<void> run_slice(SequenceRows slice);
  Task<void> fill_cloud(SequenceRows piece);
  Task<void> rest_after_races();
  Task<void> wait_after(const RemoteError& error);
  Task<std::vector<float>> ask(Send::Call call, SequenceRows rows);
  void next_target();
  void decide();
  void enter(State state);
  // The target's tail; null if nothing of it is here yet.
  const std::shared_ptr<TailSide>& tail() const {
    return target_->tail ? target_->tail : sides_.tail;
  }
  // The tail that has all stages; null if there is none.
  std::shared_ptr<TailSide> whole() const;
  CloudSide& cloud() { return sides_.cut == 0 ? next_cloud_ : sides_.cloud; }
  const CloudSide& cloud() const { return sides_.cut == 0 ? next_cloud_ : sides_.cloud; }
  uint32_t rows_there() const;
  bool weights_there() const;

  // Costs of the target so far.
  struct Work {
    uint64_t rows = 0, bytes = 0, layer_rows = 0;  // layer_rows: of the cloud
    uint32_t last_lag = UINT32_MAX;
    int lost_races = 0;
  };

  SplitState& sides_;
  const MoveOptions options_;
  Backoff backoff_;
  TextPlace place_;
  State state_ = State::kIdle;
  std::deque<Target> targets_;    // after target_
  std::optional<Target> target_;  // the one being prepared
  Work work_;                     // spent on target_
  uint64_t aims_ = 0;             // calls of aim()
  CloudSide next_cloud_;          // used while the text runs here alone
  bool next_asked_ = false;       // the server may have opened it
  bool appending_ = false;  // a fill is adding rows to it, and must not arrive behind the text's
                            // step
  std::vector<std::string> ended_;    // sessions to end on the server
  SplitCounts flying_, settled_;      // costs of pending requests and jobs; of finished ones
  uint64_t spent_ = 0;                // the cloud's layer rows since the last move
  std::optional<uint32_t> moved_at_;  // tokens out at a move, until the next token is there
  std::shared_ptr<TailSide> offered_, rescue_;
  bool is_beyond_rescue_ = false;
  bool told_stays_ = false;
  Flow flow_;
};

}  // namespace split::edge
