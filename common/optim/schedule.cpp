#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace split::optim {
namespace {

double number(int64_t value) { return static_cast<double>(value); }
// From a to b along half a wave.
double cosine(double a, double b, double along) {
  return b + (a - b) * (1 + std::cos(std::numbers::pi * along)) / 2;
}

}  // namespace

Schedule step_lr(int64_t size, double gamma) {
  return [=](double lr, int64_t step) { return lr * std::pow(gamma, number(step / size)); };
}
Schedule multi_step_lr(std::vector<int64_t> milestones, double gamma) {
  return [=, milestones = std::move(milestones)](double lr, int64_t step) {
    const auto passed = std::ranges::count_if(milestones, [&](int64_t m) { return m <= step; });
    return lr * std::pow(gamma, number(passed));
  };
}
Schedule exponential_lr(double gamma) {
  return [=](double lr, int64_t step) { return lr * std::pow(gamma, number(step)); };
}
Schedule constant_lr(double factor, int64_t total) {
  return [=](double lr, int64_t step) { return step < total ? lr * factor : lr; };
}
Schedule linear_lr(double start, double end, int64_t total) {
  return [=](double lr, int64_t step) {
    return lr * (start + (end - start) * number(std::min(step, total)) / number(total));
  };
}
Schedule polynomial_lr(int64_t total, double power) {
  return [=](double lr, int64_t step) {
    return lr * std::pow(1 - number(std::min(step, total)) / number(total), power);
  };
}
Schedule cosine_annealing_lr(int64_t half_period, double least) {
  return [=](double lr, int64_t step) {
    return cosine(lr, least, number(step) / number(half_period));
  };
}
Schedule cosine_warm_restarts(int64_t first, int64_t times, double least) {
  return [=](double lr, int64_t step) {
    int64_t period = first;
    while (step >= period) {
      step -= period;
      period *= times;
    }
    return cosine(lr, least, number(step) / number(period));
  };
}

double OneCycle::at(int64_t step, double first, double peak, double last) const {
  const double top = up * number(total) - 1, end = number(total) - 1;
  return number(step) <= top ? cosine(first, peak, number(step) / top)
                             : cosine(peak, last, (number(step) - top) / (end - top));
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
