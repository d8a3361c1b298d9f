// How fast a reply's body must come, so that a peer that sends a byte now and then holds nobody:
// a body at some rate from its first byte on; a stream of events, which may be quiet, an event or a
// comment now and then. Knows no clock and no socket. Private to common/http.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "http/client.h"

namespace split::http {

// Finds where events and comments end, and keeps nothing of them.
class SsePulse {
 public:
  // Whether one ended in these bytes.
  bool feed(std::string_view bytes);

 private:
  std::string start_;      // of the line, as much as tells what it is
  bool has_data_ = false;  // in the event
};

// One body's; one thread at a time.
class Pace {
 public:
  using Time = std::chrono::steady_clock::time_point;
  // `now`: the head has come.
  Pace(const Client::Options& options, bool events, Time now);

  // When it will be too late, as things are; max() while nothing is asked for.
  Time due() const { return due_; }
  // Takes what came. False when it was too late.
  bool take(Time now, std::string_view bytes);
  // Names what was missed, in a few words.
  std::string missed() const;

 private:
  const uint64_t rate_;  // bytes a second
  const std::chrono::milliseconds span_, event_timeout_;
  std::optional<SsePulse> pulse_;  // of a stream of events
  Time due_;
  uint64_t wanted_ = 0;  // bytes until then
};

}  // namespace split::http
