// How much of the line a download takes beside a text: one connection, and a range at a time that
// takes a tenth of a second at the measured rate, so that no token waits for longer. While no text
// runs: every connection, and whole chunks. Has no socket and no clock: callers pass what came, and
// its time.
#pragma once

#include <chrono>
#include <cstdint>

namespace split::edge {

// One thread at a time.
class FetchPace {
 public:
  explicit FetchPace(unsigned connections) : connections_(connections) {}

  void text_runs(bool runs) { text_runs_ = runs; }
  bool text_runs() const { return text_runs_; }
  unsigned connections() const { return text_runs_ ? 1 : connections_; }
  // Bytes to request at once, of `left`: all of them while no text runs.
  uint64_t range(uint64_t left) const;
  // Notes bytes of one connection after the first ones of an answer, and the time since these: the
  // wait for the first says nothing about the rate.
  void came(uint64_t bytes, std::chrono::duration<double> took);
  double bytes_per_second() const { return rate_; }  // 0: unknown

 private:
  const unsigned connections_;
  bool text_runs_ = false;
  double rate_ = 0;
};

}  // namespace split::edge
