#include "cloud_server/state/load.h"

#include <algorithm>
#include <vector>

namespace split::cloud {
namespace {

constexpr size_t kMostSteps = 512;
constexpr std::chrono::milliseconds kLately{5000};
// Long enough for a 99th percentile, and short enough to follow the load.
constexpr std::chrono::milliseconds kPressureWindow{2000};
constexpr uint32_t kFew = 8, kMany = 64;  // rows
constexpr int kRepetitions = 3;

// Returns the shortest of several runs: the others waited for something.
double best_ms(Batcher& batcher, Point to, uint32_t rows, Phase phase) {
  const OneSequence sequence(batcher.shard().pages(), false);
  const std::vector<int32_t> tokens(rows, 0);
  const SequenceRows all{
      .range = {.to = to}, .tokens = tokens, .phase = phase, .wanted = Wanted::kAll};
  std::vector<float> out(rows * batcher.shard().width(to));
  double best = 0;
  for (int i = 0; i < kRepetitions; ++i) {
    Job job{sequence.id, all, out.data()};
    job.requester.self = true;
    batcher.run(job);
    best = i == 0 ? job.compute_ms : std::min(best, job.compute_ms);
  }
  return best;
}

// Clamps a difference of measurements.
double at_least_0(double ms) { return std::max(0.0, ms); }

}  // namespace

void LoadMeter::add(double step_ms, double work_ms, Time ended) {
  const std::lock_guard lock(mutex_);
  steps_.push_back({ended, step_ms, work_ms});
  if (steps_.size() > kMostSteps) steps_.pop_front();
}

LoadMeter::Load LoadMeter::at(Time now) const { return figures(now, kLately, true); }

LoadMeter::Load LoadMeter::at(Time now, std::chrono::milliseconds lately) const {
  return figures(now, lately, false);
}

LoadMeter::Load LoadMeter::figures(Time now, std::chrono::milliseconds lately, bool all) const {
  std::vector<double> taken;
  const auto window_ms = static_cast<double>(lately.count());
  double since_ms = window_ms, busy_ms = 0, work_ms = 0;
  {
    const std::lock_guard lock(mutex_);
    for (const Step& step : steps_) {
      const std::chrono::duration<double, std::milli> ago = now - step.ended;
      if (all || ago.count() < window_ms) taken.push_back(step.ms);
      const double within = std::clamp(window_ms - ago.count(), 0.0, step.ms);
      busy_ms += within;
      if (step.ms > 0) work_ms += step.work_ms * within / step.ms;
    }
    // With steps in less than that time, counts from the first one.
    if (steps_.size() == kMostSteps) {
      const std::chrono::duration<double, std::milli> ago = now - steps_.front().ended;
      since_ms = std::min(since_ms, ago.count() + steps_.front().ms);
    }
  }
  Load load;
  load.busy = since_ms > 0 ? std::min(1.0, busy_ms / since_ms) : 1.0;
  load.work = since_ms > 0 ? std::min(1.0, work_ms / since_ms) : 1.0;
  if (taken.empty()) return load;
  std::ranges::sort(taken);
  load.p50_ms = taken[(taken.size() - 1) / 2];
  load.p99_ms = taken[(taken.size() * 99 + 99) / 100 - 1];
  return load;
}

Shedding::Measured pressure_of(const LoadMeter& steps, const LoadMeter& waits, double kv,
                               LoadMeter::Time now) {
  return {steps.at(now, kPressureWindow).work, kv,
          waits.at(now, kPressureWindow).p99_ms.value_or(0)};
}

std::optional<StepCosts> measure_steps(Batcher& batcher) {
  const ModelConfig& config = batcher.shard().model().config();
  if (config.encodes() || config.layers == 0) return {};
  if (config.context < static_cast<int>(kMany)) return {};
  const int half = config.layers / 2;
  const auto block_ms = [&](uint32_t rows, Phase phase) {
    const double whole = best_ms(batcher, config.layers, rows, phase);
    return at_least_0(whole - best_ms(batcher, half, rows, phase)) / (config.layers - half);
  };
  const auto head_ms = [&](uint32_t rows) {
    return at_least_0(best_ms(batcher, Point::head(), rows, Phase::kGenerate) -
                      best_ms(batcher, config.layers, rows, Phase::kGenerate));
  };
  // Fits a line through one row and a few.
  const auto line = [](double one, double few, double& step, double& row) {
    row = at_least_0(few - one) / (kFew - 1);
    step = at_least_0(one - row);
  };
  StepCosts costs;
  line(block_ms(1, Phase::kGenerate), block_ms(kFew, Phase::kGenerate), costs.block_ms,
       costs.block_row_ms);
  line(head_ms(1), head_ms(kFew), costs.head_ms, costs.head_row_ms);
  costs.prompt_row_ms = block_ms(kMany, Phase::kPrompt) / kMany;
  return costs;
}

double work_of(const StepSeen& seen, const StepCosts& costs, int layers, uint32_t most_rows) {
  const int blocks = std::min(seen.to, Point(layers)).block();
  const double fixed = costs.block_ms * blocks + (seen.to >= Point::head() ? costs.head_ms : 0);
  const double rows = seen.prompt_rows + seen.generated_rows + seen.fill_rows;
  const double free = std::max(0.0, 1 - rows / std::max(1u, most_rows));
  return std::max(0.0, seen.ms - fixed * free);
}

}  // namespace split::cloud
