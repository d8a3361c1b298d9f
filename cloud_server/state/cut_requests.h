// The wishes of a cloud to the edges of one model: every half second the pressure of load becomes
// a wish for each session that steps. There is no thread: whoever asks first in that time runs the
// round.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "cloud_server/state/shedding.h"
#include "run/kv_pages.h"
#include "wire/load_note.h"

namespace split::cloud {

// Any number of threads.
class CutRequests {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::milliseconds kRound{500};
  // A session that made no step for so long is not asked for anything.
  static constexpr std::chrono::seconds kIdle{10};

  CutRequests(int layers, double slo_ms, std::function<Shedding::Measured()> measure,
              std::function<Time()> clock)
      : measure_(std::move(measure)), clock_(std::move(clock)), shedding_(layers, slo_ms) {}

  // A session's step has come, and will go so far.
  void comes(SequenceId session, Point to);
  // A session made a step: what its answer tells. `can`: the lowest cut that its edge could go on
  // from; one that does not say so is asked for nothing.
  wire::LoadNote told(SequenceId session, Priority priority, std::optional<int> can);
  // The same for callers without a session.
  wire::LoadNote told();
  // Whether the session is asked to take layers.
  bool asks(SequenceId session) const;
  // Whether no session has made a step for kIdle.
  bool rest() const;
  double pressure();

 private:
  struct Session {
    std::optional<Shedding::Session> is = {};  // none: its edge did not say what it can
    Time seen = {};
    std::optional<Point> to = {};  // of its last step
  };
  wire::LoadNote note(std::optional<int> want) const;  // with the lock held, as:
  void round(Time now);

  const std::function<Shedding::Measured()> measure_;
  const std::function<Time()> clock_;
  mutable std::mutex mutex_;  // of:
  Shedding shedding_;
  std::map<Shedding::Id, Session> sessions_;
  std::optional<Time> next_;
};

}  // namespace split::cloud
