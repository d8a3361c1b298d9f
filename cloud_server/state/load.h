// Says how busy a model is, and what its rows cost: what an edge needs to know to choose its cut
// (GET /v1/models/{id}/load).
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

// The steps of late. Any number of threads.
class LoadMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Load {
    double busy = 0;  // the part of the time in which a step ran
    double work = 0;  // the part of the time that its rows cost
    std::optional<double> p50_ms, p99_ms;
  };

  void add(double step_ms, Time ended = std::chrono::steady_clock::now()) {
    add(step_ms, step_ms, ended);
  }
  // `work_ms`: work_of() it.
  void add(double step_ms, double work_ms, Time ended);
  // The last 5 s, and the last 512 steps; nothing where there was none.
  Load at(Time now = std::chrono::steady_clock::now()) const;
  // Only the steps of these that ended so lately.
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

// The load that wishes follow: of the steps lately, and of what tokens waited for them.
Shedding::Measured pressure_of(const LoadMeter& steps, const LoadMeter& waits, double kv,
                               LoadMeter::Time now);

using wire::StepCosts;
// Runs steps of 1, 8 and 64 rows through half the blocks, all, and the head. Nothing for a context
// that holds no such step. Throws as Batcher::run.
std::optional<StepCosts> measure_steps(Batcher& batcher);

// Milliseconds of a step that its rows cost. What it takes however few they are is shared among as
// many as it could hold: a batch that grows would take no more of that, so a step that always runs
// is no full one.
double work_of(const StepSeen& seen, const StepCosts& costs, int layers, uint32_t most_rows);

}  // namespace split::cloud
