// Tells a person that the program waits for its cloud: at once, then counted in seconds, and when
// it answers again. One changing line on a terminal, elsewhere a line now and then. Short waits are
// not reported, and a first silence a little later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <string>
#include <thread>

#include "base/resources/clock.h"
#include "edge_client/split/backoff.h"
#include "edge_client/split/lock_order.h"
#include "program/world.h"

namespace split::edge {

class CloudNotice {
 public:
  // `console` outlives it.
  CloudNotice(const Console& console, std::string url, bool quiet);
  ~CloudNotice();
  CloudNotice(const CloudNotice&) = delete;
  CloudNotice& operator=(const CloudNotice&) = delete;

  // A wait for the cloud begins, and ends: it answers (`again`), or is given up. Called in pairs.
  // Any thread.
  void lost(const RemoteError& error);
  void found(bool again);
  // The time so far, without waits too short to report.
  double waited_ms() const;
  // Clears the line and reports nothing more: pending waits are given up.
  void end();
  // Notes text on the same terminal, which may not have ended a line.
  void wrote(std::string_view text) {
    if (!text.empty()) mid_line_ = text.back() != '\n';
  }

 private:
  Clock::duration lasted() const;
  void run();
  void say(Clock::time_point now);

  const Console& console_;
  const std::string url_;
  bool quiet_;
  std::atomic<bool> mid_line_ = false;  // stdout's text, on stderr's terminal, has not ended its
                                        // line
  mutable Mutex mutex_{LockOrder::kNotice};  // guards the members below, and quiet_
  std::condition_variable changed_;
  size_t waiting_ = 0;  // pending waits
  std::string why_;     // the server's error, if it answers
  Clock::time_point since_;
  Clock::duration waited_{};  // before since_
  std::chrono::milliseconds untold_{};
  bool shown_ = false, stopping_ = false;
  std::thread thread_;  // started with the first wait
};

}  // namespace split::edge
