// Schedules of a rate by PyTorch's names: functions of the step's number, and one of a metric's
// history. Knows no graph.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

namespace split::optim {

// The rate of a step, from a base rate.
using Schedule = std::function<double(double lr, int64_t step)>;

Schedule step_lr(int64_t size, double gamma);
Schedule multi_step_lr(std::vector<int64_t> milestones, double gamma);
Schedule exponential_lr(double gamma);
Schedule constant_lr(double factor, int64_t total);
Schedule linear_lr(double start, double end, int64_t total);
Schedule polynomial_lr(int64_t total, double power);
Schedule cosine_annealing_lr(int64_t half_period, double least);
Schedule cosine_warm_restarts(int64_t first, int64_t times, double least = 0);

// Up to `most` and down to nearly 0, by cosines; beta1 the other way round.
struct OneCycle {
  double most = 0.1;
  int64_t total = 1;
  double up = 0.3, divided = 25, divided_at_end = 1e4, least_beta = 0.85, most_beta = 0.95;
  double rate(int64_t step) const;
  double beta(int64_t step) const;

 private:
  double at(int64_t step, double first, double peak, double last) const;
};

// The rate times `factor` once more than `patience` metrics in a row did not beat the best.
class ReduceOnPlateau {
 public:
  ReduceOnPlateau(double factor, int64_t patience, double threshold)
      : factor_(factor), threshold_(threshold), patience_(patience) {}
  // Returns the factor of the base rate from now on.
  double seen(double metric);

 private:
  double factor_, threshold_, now_ = 1, best_ = std::numeric_limits<double>::infinity();
  int64_t patience_, bad_ = 0;
};

}  // namespace split::optim
