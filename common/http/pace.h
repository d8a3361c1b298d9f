// How fast a reply's body must come, so that a peer that only trickles holds nobody: a body at some
// rate from its first byte on; a stream of events, which may be quiet, an event or a comment now
// and then. Has no clock and no socket. Private to common/http.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "http/client.h"

namespace split::http {

// Finds the ends of events and comments, without keeping them.
class SsePulse {
 public:
  // Whether one ended in these bytes.
  bool feed(std::string_view bytes);

 private:
  std::string start_;      // beginning of the line, enough to classify it
  bool has_data_ = false;  // the event has a data line
};

// One body's pace. One thread at a time.
class Pace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // `now`: when the head had come.
  Pace(const Client::Options& options, bool events, Time now);

  // The deadline as of now; max() while there is none.
  Time due() const { return due_; }
  // Counts what came. Returns false if it was too late.
  bool take(Time now, std::string_view bytes);
  // Names what was missed, in a few words.
  std::string missed() const;

 private:
  const uint64_t rate_;  // bytes/s
  const std::chrono::milliseconds span_, event_timeout_;
  std::optional<SsePulse> pulse_;  // set for a stream of events
  Time due_;
  uint64_t wanted_ = 0;  // bytes until the deadline
};

}  // namespace split::http
