#include "optim/optim.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "autograd/functions.h"
#include "base/error.h"

namespace split::optim {
namespace {

Tensor state(const State& of) { return input(of.name, DType::kF32, of.dims); }
float real(double value) { return static_cast<float>(value); }

// 1 - beta^t, by the step before: exact where 1 - beta^t of floats would cancel.
State correction(size_t group, int which) {
  return {cat("optim.", group, ".correction", which), {}};
}
const State kStep{"optim.step", {}};

struct Moments {
  State mean, square, largest, buffer, sum;
  explicit Moments(const Parameter& of)
      : mean{of.name + ".exp_avg", of.leaf.dims()},
        square{of.name + ".exp_avg_sq", of.leaf.dims()},
        largest{of.name + ".max_exp_avg_sq", of.leaf.dims()},
        buffer{of.name + ".momentum_buffer", of.leaf.dims()},
        sum{of.name + ".sum", of.leaf.dims()} {}
};

using Updates = std::vector<NamedOutput>;

void sgd(const Parameter& parameter, const Options& o, Tensor g, const Tensor& rate, Updates& out) {
  const Tensor& p = parameter.leaf;
  if (o.weight_decay != 0) g = g + p * real(o.weight_decay);
  if (o.momentum != 0) {
    const State buffer = Moments(parameter).buffer;
    Tensor next = state(buffer) * real(o.momentum) + g * real(1 - o.dampening);
    if (o.dampening != 0) next = select(state(kStep) == 0.0f, g, next);
    out.push_back({buffer.name, next});
    g = o.nesterov ? g + next * real(o.momentum) : next;
  }
  out.push_back({parameter.name, p - g * rate});
}

void rmsprop(const Parameter& parameter, const Options& o, Tensor g, const Tensor& rate,
             Updates& out) {
  const Tensor& p = parameter.leaf;
  const Moments names(parameter);
  if (o.weight_decay != 0) g = g + p * real(o.weight_decay);
  const auto moved = [&](const State& from, const Tensor& to) {
    const Tensor next = state(from) * real(o.alpha) + to * real(1 - o.alpha);
    out.push_back({from.name, next});
    return next;
  };
  Tensor square = moved(names.square, g * g);
  if (o.centered) {
    const Tensor mean = moved(names.mean, g);
    square = square - mean * mean;
  }
  Tensor step = g / (sqrt(square) + real(o.eps));
  if (o.momentum != 0) {
    step = state(names.buffer) * real(o.momentum) + step;
    out.push_back({names.buffer.name, step});
  }
  out.push_back({parameter.name, p - step * rate});
}

void adagrad(const Parameter& parameter, const Options& o, Tensor g, const Tensor& rate,
             Updates& out) {
  const Tensor& p = parameter.leaf;
  const State sum = Moments(parameter).sum;
  if (o.weight_decay != 0) g = g + p * real(o.weight_decay);
  const Tensor all = state(sum) + g * g;
  out.push_back({sum.name, all});
  const Tensor now = rate / (state(kStep) * real(o.lr_decay) + 1.0f);
  out.push_back({parameter.name, p - now * (g / (sqrt(all) + real(o.eps)))});
}

// `c1`, `c2`: the corrections of this step.
void adam(const Parameter& parameter, const Options& o, Tensor g, const Tensor& rate,
          const Tensor& beta1, const Tensor& c1, const Tensor& c2, Updates& out) {
  Tensor p = parameter.leaf;
  const Moments names(parameter);
  if (o.weight_decay != 0 && o.method == Method::kAdam) g = g + p * real(o.weight_decay);
  if (o.weight_decay != 0 && o.method == Method::kAdamW) {
    p = p * (1.0f - rate * real(o.weight_decay));
  }
  const Tensor mean = o.cycled ? state(names.mean) * beta1 + g * (1.0f - beta1)
                               : state(names.mean) * real(o.beta1) + g * real(1 - o.beta1);
  const Tensor square = state(names.square) * real(o.beta2) + g * g * real(1 - o.beta2);
  out.push_back({names.mean.name, mean});
  out.push_back({names.square.name, square});
  Tensor largest = square;
  if (o.amsgrad) {
    largest = maximum(state(names.largest), square);
    out.push_back({names.largest.name, largest});
  }
  const Tensor by = sqrt(largest) / sqrt(c2) + real(o.eps);
  out.push_back({parameter.name, p - (rate / c1) * (mean / by)});
}

}  // namespace

std::vector<Tensor> Optimiser::leaves() const {
  std::vector<Tensor> all;
  for (const Group& group : groups_) {
    for (const Parameter& parameter : group.parameters) all.push_back(parameter.leaf);
  }
  return all;
}

std::string Optimiser::rate_name(size_t group) { return cat("optim.", group, ".rate"); }
std::string Optimiser::beta_name(size_t group) { return cat("optim.", group, ".beta1"); }

std::vector<State> Optimiser::states() const {
  std::vector<State> all{kStep};
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Options& o = groups_[i].options;
    const bool adam = o.method == Method::kAdam || o.method == Method::kAdamW;
    if (adam) all.insert(all.end(), {correction(i, 1), correction(i, 2)});
    for (const Parameter& parameter : groups_[i].parameters) {
      const Moments names(parameter);
      if (adam) all.insert(all.end(), {names.mean, names.square});
      if (adam && o.amsgrad) all.push_back(names.largest);
      if (o.method == Method::kRmsprop) all.push_back(names.square);
      if (o.method == Method::kRmsprop && o.centered) all.push_back(names.mean);
      if (o.method == Method::kAdagrad) all.push_back(names.sum);
      if (!adam && o.method != Method::kAdagrad && o.momentum != 0) all.push_back(names.buffer);
    }
  }
  return all;
}

std::vector<NamedOutput> Optimiser::updates(std::span<const Tensor> gradients) const {
  Updates out{{kStep.name, state(kStep) + 1.0f}};
  size_t next = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    const Options& o = groups_[i].options;
    const Tensor rate = input(rate_name(i), DType::kF32, {});
    Tensor c1 = 1.0f, c2 = 1.0f, beta1 = 1.0f;
    if (o.method == Method::kAdam || o.method == Method::kAdamW) {
      c1 = state(correction(i, 1)) * real(o.beta1) + real(1 - o.beta1);
      c2 = state(correction(i, 2)) * real(o.beta2) + real(1 - o.beta2);
      out.push_back({correction(i, 1).name, c1});
      out.push_back({correction(i, 2).name, c2});
      if (o.cycled) {  // uses the present beta1, as PyTorch does
        beta1 = input(beta_name(i), DType::kF32, {});
        c1 = 1.0f - pow(beta1, state(kStep) + 1.0f);
      }
    }
    for (const Parameter& parameter : groups_[i].parameters) {
      CHECK(next < gradients.size());
      const Tensor g = o.maximize ? neg(gradients[next]) : gradients[next];
      ++next;
      switch (o.method) {
        case Method::kSgd:
          sgd(parameter, o, g, rate, out);
          break;
        case Method::kRmsprop:
          rmsprop(parameter, o, g, rate, out);
          break;
        case Method::kAdagrad:
          adagrad(parameter, o, g, rate, out);
          break;
        default:
          adam(parameter, o, g, rate, beta1, c1, c2, out);
      }
    }
  }
  CHECK(next == gradients.size());
  return out;
}

Tensor global_norm(std::span<const Tensor> gradients) {
  Tensor all = 0.0f;
  for (const Tensor& g : gradients) all = all + sum(square(g));
  return sqrt(all);
}

std::vector<Tensor> clip_by_norm(std::span<const Tensor> gradients, const Tensor& norm,
                                 double most) {
  const Tensor factor = minimum(real(most) / (norm + 1e-6f), 1.0f);
  std::vector<Tensor> all;
  for (const Tensor& g : gradients) all.push_back(g * factor);
  return all;
}

std::vector<Tensor> clip_by_value(std::span<const Tensor> gradients, double most) {
  std::vector<Tensor> all;
  for (const Tensor& g : gradients) all.push_back(minimum(maximum(g, real(-most)), real(most)));
  return all;
}

double WarmupCosine::at(int64_t step) const {
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  const auto length = static_cast<double>(std::max<int64_t>(1, total - warmup));
  const double along = std::min(1.0, static_cast<double>(step - warmup) / length);
  return floor + (1 - floor) * (1 + std::cos(std::numbers::pi * along)) / 2;
}

}  // namespace split::optim
