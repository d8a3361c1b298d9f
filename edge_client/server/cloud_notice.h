// Tells a person that the program waits for its cloud: at once, counted in seconds, and
// when it answers again. At a terminal one line that changes, elsewhere a line now and then. Waits
// that are over before anybody would wonder are not told, and a first silence a little later.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

#include "base/resources/clock.h"
#include "edge_client/split/backoff.h"
#include "program/world.h"

namespace split::edge {

class CloudNotice {
 public:
  // `console` outlives it.
  CloudNotice(const Console& console, std::string url, bool quiet);
  ~CloudNotice();
  CloudNotice(const CloudNotice&) = delete;
  CloudNotice& operator=(const CloudNotice&) = delete;

  // Something waits for the cloud from now on, and does no more: it answers `again`, or is given
  // up. Each as often as the other. Any thread.
  void lost(const RemoteError& error);
  void found(bool again);
  // How long so far, without waits too short to be told.
  double waited_ms() const;
  // Takes back what is shown and tells no more: what waits is given up.
  void end();
  // Text has gone to the same terminal: whether it ended a line.
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
  std::atomic<bool> mid_line_ = false;  // text of stdout, on the terminal of stderr
  mutable std::mutex mutex_;            // of all below, and quiet_
  std::condition_variable changed_;
  size_t waiting_ = 0;  // that wait now
  std::string why_;     // it answers, but not with what it is asked for
  Clock::time_point since_;
  Clock::duration waited_{};  // before that
  std::chrono::milliseconds untold_{};
  bool shown_ = false, stopping_ = false;
  std::thread thread_;  // once somebody waits
};

}  // namespace split::edge
