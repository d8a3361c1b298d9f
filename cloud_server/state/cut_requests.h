// A cloud's requests to the edges of one model: every half second the pressure of load becomes a
// requested cut for each active session. Has no thread: the first caller in each interval runs the
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
  // Sessions without a step for so long get no request.
  static constexpr std::chrono::seconds kIdle{10};

  CutRequests(int layers, double slo_ms, std::function<Shedding::Measured()> measure,
              std::function<Time()> clock)
      : measure_(std::move(measure)), clock_(std::move(clock)), shedding_(layers, slo_ms) {}

  // Notes that a session's step has come, to be run up to `to`.
  void comes(SequenceId session, Point to);
  // Returns the note for the answer to a session's step. `can`: the lowest cut from which its edge
  // could go on; an edge that does not say gets no request.
  wire::LoadNote told(SequenceId session, Priority priority, std::optional<int> can);
  // Returns the note for callers without a session.
  wire::LoadNote told();
  // Whether the session is asked to take layers.
  bool asks(SequenceId session) const;
  // Whether no session has made a step for kIdle.
  bool rest() const;
  double pressure();

 private:
  struct Session {
    std::optional<Shedding::Session> is = {};  // nullopt: its edge did not say what it can
    Time seen = {};
    std::optional<Point> to = {};  // end of its last step
  };
  wire::LoadNote note(std::optional<int> want) const;  // call with the lock held, as round()
  void round(Time now);

  const std::function<Shedding::Measured()> measure_;
  const std::function<Time()> clock_;
  mutable std::mutex mutex_;  // guards the members below
  Shedding shedding_;
  std::map<Shedding::Id, Session> sessions_;
  std::optional<Time> next_;
};

}  // namespace split::cloud
