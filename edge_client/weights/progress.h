// The download's progress: one total over all files that never goes back. A bar with bytes, rate
// and time left on a terminal; else a line for every 10 %.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string_view>

#include "base/resources/clock.h"

namespace split::edge {

struct ProgressTo {
  std::function<void(std::string_view)> say;  // empty: silent
  bool terminal = false;
};

// One thread at a time.
class Progress {
 public:
  Progress(ProgressTo to, uint64_t total);
  ~Progress();  // ends the bar's line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(uint64_t bytes);
  void more(uint64_t bytes) { total_ += bytes; }  // more than was known
  void finish();

 private:
  void draw(bool last);

  const ProgressTo to_;
  uint64_t total_, done_ = 0;
  int tenths_ = 0;
  bool open_line_ = false;
  Clock::time_point start_, drawn_;
};

}  // namespace split::edge
