// How much of the line a download takes that goes on beside a text: one connection, and a range at
// a time that is through in a tenth of a second by the rate that was measured, so that no token
// waits behind it for longer. While no text runs, every connection and whole chunks. Knows no
// socket and no clock: it is told what came, and how long that took.
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
  // How many of the bytes that are left to ask for at once: all of them while no text runs.
  uint64_t range(uint64_t left) const;
  // Bytes that came over one connection behind the first ones of an answer, and how long after
  // these: the wait for the first says nothing about the rate.
  void came(uint64_t bytes, std::chrono::duration<double> took);
  double bytes_per_second() const { return rate_; }  // 0: not known

 private:
  const unsigned connections_;
  bool text_runs_ = false;
  double rate_ = 0;
};

}  // namespace split::edge
