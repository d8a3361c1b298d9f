#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace split::optim {
namespace {

double real(int64_t value) { return static_cast<double>(value); }
// From a to b along half a wave.
double cosine(double a, double b, double along) {
  return b + (a - b) * (1 + std::cos(std::numbers::pi * along)) / 2;
}

}  // namespace

Schedule step_lr(int64_t size, double gamma) {
  return [=](double lr, int64_t step) { return lr * std::pow(gamma, real(step / size)); };
}
Schedule multi_step_lr(std::vector<int64_t> milestones, double gamma) {
  return [=, milestones = std::move(milestones)](double lr, int64_t step) {
    const auto passed = std::ranges::count_if(milestones, [&](int64_t m) { return m <= step; });
    return lr * std::pow(gamma, real(passed));
  };
}
Schedule exponential_lr(double gamma) {
  return [=](double lr, int64_t step) { return lr * std::pow(gamma, real(step)); };
}
Schedule constant_lr(double factor, int64_t total) {
  return [=](double lr, int64_t step) { return step < total ? lr * factor : lr; };
}
Schedule linear_lr(double start, double end, int64_t total) {
  return [=](double lr, int64_t step) {
    return lr * (start + (end - start) * real(std::min(step, total)) / real(total));
  };
}
Schedule polynomial_lr(int64_t total, double power) {
  return [=](double lr, int64_t step) {
    return lr * std::pow(1 - real(std::min(step, total)) / real(total), power);
  };
}
Schedule cosine_annealing_lr(int64_t half_period, double least) {
  return [=](double lr, int64_t step) { return cosine(lr, least, real(step) / real(half_period)); };
}
Schedule cosine_warm_restarts(int64_t first, int64_t times, double least) {
  return [=](double lr, int64_t step) {
    int64_t period = first;
    while (step >= period) {
      step -= period;
      period *= times;
    }
    return cosine(lr, least, real(step) / real(period));
  };
}

double OneCycle::at(int64_t step, double first, double peak, double last) const {
  const double top = up * real(total) - 1, end = real(total) - 1;
  return real(step) <= top ? cosine(first, peak, real(step) / top)
                           : cosine(peak, last, (real(step) - top) / (end - top));
}
double OneCycle::rate(int64_t step) const {
  return at(step, most / divided, most, most / divided / divided_at_end);
}
double OneCycle::beta(int64_t step) const { return at(step, most_beta, least_beta, most_beta); }

double ReduceOnPlateau::seen(double metric) {
  if (metric < best_ * (1 - threshold_)) {
    best_ = metric;
    bad_ = 0;
  } else if (++bad_ > patience_) {
    now_ *= factor_;
    bad_ = 0;
  }
  return now_;
}

}  // namespace split::optim
