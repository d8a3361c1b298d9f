// Where the time of a step goes, for SPLIT_DEBUG=2: one line for each run of the device, the
// kernels of all its programs together by kind and shape.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "compile/program.h"

namespace split {

class StepTimes {
 public:
  StepTimes();  // reads the environment
  bool on() const { return on_; }

  // Calls `work`, which is one step.
  template <typename Work>
  void timed(const Step& step, const Work& work) {
    if (!on_) return work();
    const auto start = Clock::now();
    work();
    add(step, Clock::now() - start);
  }
  // Logs them and begins anew.
  void report(size_t rows);

 private:
  using Clock = std::chrono::steady_clock;
  struct Sum {
    std::string what;
    Clock::duration total{};
    int count = 0;
  };
  void add(const Step& step, Clock::duration duration);

  bool on_;
  std::vector<Sum> sums_;
};

}  // namespace split
