// A model's load, and the cost of its rows: what an edge needs to choose its cut (GET
// /v1/models/{id}/load).
#pragma once

#include <chrono>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "cloud_server/state/shedding.h"
#include "run/batcher.h"
#include "wire/load.h"

namespace split::cloud {

// Recent steps. Any number of threads.
class LoadMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Load {
    double busy = 0;  // share of time in which a step ran
    double work = 0;  // share of time that its rows cost
    std::optional<double> p50_ms, p99_ms;
  };

  void add(double step_ms, Time ended = std::chrono::steady_clock::now()) {
    add(step_ms, step_ms, ended);
  }
  // `work_ms`: by work_of().
  void add(double step_ms, double work_ms, Time ended);
  // Returns the figures of the last 5 s and at most 512 steps; percentiles are nullopt without any.
  Load at(Time now = std::chrono::steady_clock::now()) const;
  // Counts only steps that ended within `lately`.
  Load at(Time now, std::chrono::milliseconds lately) const;

 private:
  struct Step {
    Time ended;
    double ms, work_ms;
  };
  Load figures(Time now, std::chrono::milliseconds lately, bool all) const;

  mutable std::mutex mutex_;
  std::deque<Step> steps_;  // the oldest first
};

// The load that requests to edges depend on: recent steps, and tokens' waits for them.
Shedding::Measured pressure_of(const LoadMeter& steps, const LoadMeter& waits, double kv,
                               LoadMeter::Time now);

using wire::StepCosts;
// Runs steps of 1, 8 and 64 rows through half the blocks, all, and the head. Returns nullopt if the
// context holds no such step. Throws as Batcher::run.
std::optional<StepCosts> measure_steps(Batcher& batcher);

// Milliseconds of a step due to its rows. A step's fixed cost is shared among the most rows that it
// could hold: a growing batch would take no more of it, so that a step that always runs need not be
// a full one.
double work_of(const StepSeen& seen, const StepCosts& costs, int layers, uint32_t most_rows);

}  // namespace split::cloud
