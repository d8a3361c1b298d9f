// The lane beside a running text on which its cut moves. It prepares a target while the text goes
// on: blocks that change sides get the rows that there are, by fills, which compute rows again
// where they are missing, so that no key and no value travels. Then the text switches at a token,
// with the few rows that came meanwhile. What fails here is tried again and costs the text nothing.
// Where to, place/decision.h says. A flow (flow.h), beside that of the course.
#pragma once

#include <deque>
#include <optional>
#include <string>

#include "edge_client/place/text_place.h"
#include "edge_client/split/backoff.h"
#include "edge_client/split/sides.h"

namespace split::edge {

// A place where the cut is to be: Move::kCloud, or so many blocks.
struct Target {
  int cut = 0;
  Why why = Why::kAsked;
  std::optional<uint32_t> at = {};  // tokens out, at which the text waits for it; none: when it can
  std::shared_ptr<TailSide> tail = {};  // none: the one there is
};

// How a text's cut may move.
struct MoveOptions {
  int deepest = 0;             // the cloud opens sessions for it
  std::deque<Target> targets;  // one after the other
  // A text goes on with all stages here in place of waiting for a lost cloud: at once where they
  // are loaded; else after a while, where that can be done (Rescue).
  bool leaves_lost_cloud = false;
  double pace = 0;  // tokens/s that a text has to keep where it goes on for what landed
  std::chrono::milliseconds between{3000};  // PlaceInput says between what
  std::chrono::milliseconds between_wishes{10000};
  // Called when a target's weights are not here yet, once for each; they come in their own time.
  std::function<void(int cut)> fetch = {};
  // Called once, where the text's own tokens, which take so many ms, are too quick for it to leave.
  std::function<void(const FasterCut& there, double token_ms)> stays = {};
};

// One thread at a time.
class CutMover {
 public:
  // Rows that the tail computes in one go: it is held so long.
  static constexpr uint32_t kSliceRows = 16;
  // Rows that a target may lack when nothing more is done for it, so that a few tokens later they
  // are still those that a step can bring.
  static constexpr uint32_t kEnough = SplitState::kMostLag / 2;

  CutMover(SplitState& sides, const MoveOptions& options, const RetryOptions& retry);

  Flow& flow() { return flow_; }
  // Somebody asks for this cut, in place of all targets that are left: of the cloud (Move::kCloud,
  // then no tail is needed); on the tail that there is, or on this one, a part of `keeps`, where
  // that lacks the stages.
  void aim(int cut, Batcher* tail = nullptr, std::shared_ptr<void> keeps = {});
  // Says how long the text may be (TextPlace::expect()).
  void expect(uint32_t most, std::optional<uint32_t> alike) { place_.expect(most, alike); }
  // The text has so many tokens out: another place may be the right one now.
  void token(uint32_t out, Moment now);
  // Nothing is left to do, unless it is aimed.
  bool idle() const { return !target_ && ended_.empty() && !place_.in.fled_from; }
  // The text may go on on this tail, a part of `keeps`.
  void offer(Batcher& tail, std::shared_ptr<void> keeps, const LocalWeights& offer);
  // The lowest cut from which it could; none: it goes on only where it is.
  std::optional<int> can() const;
  // The cloud asks for this cut or a lower one, or for none: then the text goes back to where it
  // would be. A text whose cut somebody named is left there.
  void wish(std::optional<int> want);

  // Whether the target has the cloud compute something: then a connection is of use.
  bool wants_line() const { return target_ && target_->cut > 0; }

  // Whether the text, with so many tokens out, can switch now.
  bool can_switch(uint32_t out, Moment now) const;
  // Whether it is to wait for that: the target is due and comes nearer.
  bool is_waited_for(uint32_t out) const;
  // Moves the cut. The sides lack no more there than the lag (sides.h).
  Move take(uint32_t out, Moment now);
  // Tokens out until the next target that has its time; many where there is none.
  uint32_t tokens_until_due(uint32_t out) const;
  // Whether a text whose cloud is gone goes on here, alone.
  bool can_leave_cloud() const {
    return options_.leaves_lost_cloud && sides_.cut > 0 && whole() != nullptr;
  }
  // Whether one whose stages are not all here may ask for them.
  bool may_be_rescued() const {
    return options_.leaves_lost_cloud && sides_.cut > 0 && !is_beyond_rescue_;
  }
  // Brings what came of that; none: it asks no more before the cloud has answered again.
  void rescued(std::shared_ptr<TailSide> whole);
  void cloud_answered() { is_beyond_rescue_ = false; }
  // Moves it here at once: the tail lacks `rows`, which it computes as those of a lost device. It
  // goes back once the cloud answers, if its tokens were quicker there.
  Move leave_cloud(uint32_t out, uint32_t rows);
  // Returns what the lane cost since the last call.
  SplitCounts take_counts();

  // "idle", "weights", "filling 128/512", "waiting" or "ready".
  std::string state() const;
  // Sessions that are to be ended on the server; once.
  std::vector<std::string> leave();

 private:
  enum class State : uint8_t { kIdle, kWeights, kFilling, kReady, kWaiting };
  Task<void> run();
  Task<void> close_old();
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
  // The target's; none where nothing of it is here yet.
  const std::shared_ptr<TailSide>& tail() const {
    return target_->tail ? target_->tail : sides_.tail;
  }
  // The tail that has all stages, if there is one.
  std::shared_ptr<TailSide> whole() const;
  CloudSide& cloud() { return sides_.cut == 0 ? next_cloud_ : sides_.cloud; }
  const CloudSide& cloud() const { return sides_.cut == 0 ? next_cloud_ : sides_.cloud; }
  uint32_t rows_there() const;
  bool weights_there() const;

  // Costs of the target so far.
  struct Work {
    uint64_t rows = 0, bytes = 0, layer_rows = 0;  // the last of the cloud
    uint32_t last_lag = UINT32_MAX;
    int lost_races = 0;
  };

  SplitState& sides_;
  const MoveOptions options_;
  Backoff backoff_;
  TextPlace place_;
  State state_ = State::kIdle;
  std::deque<Target> targets_;        // behind
  std::optional<Target> target_;      // this one
  Work work_;                         // for it
  uint64_t aims_ = 0;                 // so far
  CloudSide next_cloud_;              // of a text that runs here alone
  bool next_asked_ = false;           // the server may have it
  bool appending_ = false;            // rows to it, by a step that must not come behind the text's
  std::vector<std::string> ended_;    // sessions
  SplitCounts flying_, settled_;      // with whoever asks and computes; and done with
  uint64_t spent_ = 0;                // of the cloud, since the last move
  std::optional<uint32_t> moved_at_;  // tokens out, until the token behind the move is there
  std::shared_ptr<TailSide> offered_, rescue_;
  bool is_beyond_rescue_ = false;
  bool told_stays_ = false;
  Flow flow_;
};

}  // namespace split::edge
