#include <algorithm>
#include <cmath>
#include <map>

#include "autograd/imaging.h"
#include "autograd/layers.h"
#include "autograd/pointwise.h"
#include "autograd/refuse.h"
#include "base/error.h"

namespace split {
namespace {

Axes last_axes(size_t n) {
  Axes axes;
  for (size_t i = 0; i < n; ++i) axes.push_back(-1 - static_cast<int64_t>(i));
  return axes;
}
// One number a channel of x [N, C, ...].
Tensor by_channel(const Tensor& x, const Tensor& one) {
  Dims dims(x.dims().size(), 1);
  dims[1] = x.dims()[1];
  return reshape(cast(one, DType::kF32), dims);
}
// y times weight plus bias, which may be missing, in x's type.
Tensor scaled(const Tensor& x, Tensor y, const Tensor* weight, const Tensor* bias, bool channels) {
  const auto shaped = [&](const Tensor& by) {
    return channels ? by_channel(x, by) : cast(by, DType::kF32);
  };
  if (weight != nullptr) y = y * shaped(*weight);
  if (bias != nullptr) y = y + shaped(*bias);
  return is_half(x.dtype()) ? cast(y, x.dtype()) : y;
}
Tensor wide(const Tensor& x) { return cast(x, DType::kF32); }

}  // namespace

Tensor layer_norm(const Tensor& x, size_t axes, const Tensor* weight, const Tensor* bias,
                  float eps) {
  return scaled(x, normalise(wide(x), last_axes(axes), eps), weight, bias, false);
}
Tensor rms_norm(const Tensor& x, size_t axes, const Tensor* weight, float eps) {
  return scaled(x, rms_normalise(wide(x), last_axes(axes), eps), weight, nullptr, false);
}
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor* weight, const Tensor* bias,
                  float eps) {
  if (x.dims().size() < 2 || groups <= 0 || x.dims()[1] % groups != 0) {
    refuse("group_norm", cat("[N, C, ...] of ", groups, " groups"), {&x.dims()});
  }
  const Tensor y = normalise(reshape(wide(x), {x.dims()[0], groups, -1}), {2}, eps);
  return scaled(x, reshape(y, x.dims()), weight, bias, true);
}
BatchNormed batch_norm(const Tensor& of, const Tensor* mean_then, const Tensor* variance_then,
                       const Tensor* weight, const Tensor* bias, bool training, float momentum,
                       float eps) {
  const Tensor x = wide(of);
  if (x.dims().size() < 2) refuse("batch_norm", "[N, C, ...]", {&x.dims()});
  if (!training) {
    CHECK(mean_then != nullptr && variance_then != nullptr);
    const Tensor y = (x - by_channel(x, *mean_then)) * rsqrt(by_channel(x, *variance_then) + eps);
    return {scaled(of, y, weight, bias, true), *mean_then, *variance_then};
  }
  Axes axes{0};
  for (size_t i = 2; i < x.dims().size(); ++i) axes.push_back(static_cast<int64_t>(i));
  const Tensor y = scaled(of, normalise(x, axes, eps), weight, bias, true);
  const Tensor m = detach(mean(x, axes)), v = detach(variance(x, axes, 1));
  const auto moved = [&](const Tensor* from, const Tensor& to) {
    return from == nullptr ? cast(to, of.dtype())
                           : cast(wide(*from) * (1 - momentum) + to * momentum, from->dtype());
  };
  return {y, moved(mean_then, m), moved(variance_then, v)};
}
Tensor local_response_norm(const Tensor& of, int64_t size, float alpha, float beta, float k) {
  return in_floats(
      [&](const Tensor& x) {
        Dims before(x.dims().size(), 0), behind = before;
        before[1] = size / 2;
        behind[1] = (size - 1) / 2;
        const Tensor all = mean(windows(pad(square(x), before, behind), 1, size, 1), {-1});
        return x / pow(all * alpha + k, beta);
      },
      of);
}
Tensor normalize(const Tensor& of, double p, int64_t axis, float eps) {
  return in_floats(
      [&](const Tensor& x) {
        const Tensor length = norm(x, p, {axis}, true);
        return x / clamp(length, eps, INFINITY);
      },
      of);
}
Tensor cosine_similarity(const Tensor& x, const Tensor& z, int64_t axis, float eps) {
  return in_floats(
      [&](const Tensor& x, const Tensor& z) {
        const auto length = [&](const Tensor& of) {
          return clamp(norm(of, 2, {axis}), eps, INFINITY);
        };
        return sum(x * z, {axis}) / (length(x) * length(z));
      },
      x, z);
}
Tensor pairwise_distance(const Tensor& x, const Tensor& z, double p, float eps) {
  return in_floats([&](const Tensor& x, const Tensor& z) { return norm(x - z + eps, p, {-1}); }, x,
                   z);
}
Tensor cdist(const Tensor& x, const Tensor& z, double p) {
  return in_floats(
      [&](const Tensor& x, const Tensor& z) {
        return norm(unsqueeze(x, -2) - unsqueeze(z, -3), p, {-1});
      },
      x, z);
}

Tensor reduced(const Tensor& each, Reduction how) {
  if (how == Reduction::kNone) return each;
  return in_floats(
      [&](const Tensor& each) {
        if (how == Reduction::kMean) return mean(each);
        const Tensor all = sum(each);
        return how == Reduction::kSum ? all : all / static_cast<float>(each.dims().at(0));
      },
      each);
}
Tensor mse_loss(const Tensor& x, const Tensor& t) { return square(x - t); }
Tensor l1_loss(const Tensor& x, const Tensor& t) { return abs(x - t); }
Tensor smooth_l1_loss(const Tensor& x, const Tensor& t, float beta) {
  return in_floats(
      [&](const Tensor& x, const Tensor& t) {
        const Tensor far = abs(x - t);
        return select(far < beta, square(x - t) * (0.5f / beta), far - 0.5f * beta);
      },
      x, t);
}
Tensor huber_loss(const Tensor& x, const Tensor& t, float delta) {
  return smooth_l1_loss(x, t, delta) * delta;
}
Tensor soft_margin_loss(const Tensor& x, const Tensor& t) { return softplus(-(t * x)); }
Tensor binary_cross_entropy(const Tensor& x, const Tensor& t) {
  return in_floats(
      [](const Tensor& x, const Tensor& t) {
        const auto bounded_log = [](const Tensor& of) { return maximum(log(of), -100.0f); };
        return -(t * bounded_log(x) + (1.0f - t) * bounded_log(1.0f - x));
      },
      x, t);
}
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& t, const Tensor* weight,
                                        const Tensor* positive_weight) {
  return in_floats(
      [&](const Tensor& x, const Tensor& t) {
        const Tensor factor =
            positive_weight == nullptr ? Tensor(1.0f) : (*positive_weight - 1.0f) * t + 1.0f;
        const Tensor each = (1.0f - t) * x + factor * softplus(-x);
        return weight == nullptr ? each : each * *weight;
      },
      x, t);
}
Tensor kl_div(const Tensor& x, const Tensor& t, bool log_target) {
  return in_floats(
      [&](const Tensor& x, const Tensor& t) {
        return log_target ? exp(t) * (t - x) : xlogy(t, t) - t * x;
      },
      x, t);
}
Tensor cosine_embedding_loss(const Tensor& x, const Tensor& z, const Tensor& t, float margin) {
  return in_floats(
      [&](const Tensor& x, const Tensor& z, const Tensor& t) {
        const Tensor c = cosine_similarity(x, z, -1);
        return select(t == 1.0f, 1.0f - c, relu(c - margin));
      },
      x, z, t);
}
Tensor margin_ranking_loss(const Tensor& x, const Tensor& z, const Tensor& t, float margin) {
  return relu(-t * (x - z) + margin);
}
Tensor triplet_margin_loss(const Tensor& x, const Tensor& positive, const Tensor& negative,
                           float margin) {
  return relu(pairwise_distance(x, positive) - pairwise_distance(x, negative) + margin);
}
Tensor hinge_embedding_loss(const Tensor& x, const Tensor& t, float margin) {
  return select(t == 1.0f, x, relu(margin - x));
}
Tensor gaussian_nll_loss(const Tensor& x, const Tensor& t, const Tensor& variance, float eps) {
  return in_floats(
      [&](const Tensor& x, const Tensor& t, const Tensor& v) {
        const Tensor bounded = v + detach(maximum(v, eps) - v);  // its slope stays
        return 0.5f * (natural_log(bounded) + square(x - t) / bounded);
      },
      x, t, variance);
}
Tensor poisson_nll_loss(const Tensor& x, const Tensor& t) {
  return in_floats([](const Tensor& x, const Tensor& t) { return exp(x) - t * x; }, x, t);
}
Tensor multi_margin_loss(const Tensor& x, const Tensor& t, float margin) {
  const int64_t classes = x.dims().back();
  const Tensor own = gather_along(x, -1, unsqueeze(t, -1));
  const Tensor each = select(one_hot(t, classes), 0.0f, relu(x - own + margin));
  return sum(each, {-1}) / static_cast<float>(classes);
}

Tensor nll_loss(const Tensor& of, const Tensor& targets, const Targets& how) {
  const int64_t axis = of.dims().size() == 1 ? 0 : 1;
  Dims expected = of.dims();
  if (!expected.empty()) expected.erase(expected.begin() + axis);
  if (of.dims().empty() || targets.dims() != expected) {
    refuse("nll_loss", "[N, V, ...] and targets [N, ...]", {&of.dims(), &targets.dims()});
  }
  const int64_t classes = of.dims()[static_cast<size_t>(axis)];
  return in_floats(
      [&](const Tensor& logs) {
        Axes order;
        for (size_t i = 0; i < logs.dims().size(); ++i) {
          if (static_cast<int64_t>(i) != axis) order.push_back(static_cast<int64_t>(i));
        }
        order.push_back(axis);
        const Tensor moved = permute(logs, order), hit = one_hot(targets, classes);
        const Tensor kept = cast(not_equal(targets, how.ignored), DType::kF32);
        const Tensor weights = how.weight != nullptr ? wide(*how.weight) : expand(1.0f, {classes});
        const Tensor weight = sum(select(hit, expand(weights, moved.dims()), 0.0f), {-1}) * kept;
        Tensor each = -sum(select(hit, moved, 0.0f), {-1}) * weight;
        if (how.smoothing > 0) {
          const Tensor spread = -sum(moved * weights, {-1}) * kept;
          each =
              each * (1 - how.smoothing) + spread * (how.smoothing / static_cast<float>(classes));
        }
        return how.reduction == Reduction::kNone  ? each
               : how.reduction == Reduction::kSum ? sum(each)
                                                  : sum(each) / sum(weight);
      },
      of);
}
Tensor cross_entropy_loss(const Tensor& of, const Tensor& targets, const Targets& how) {
  const int64_t axis = of.dims().size() == 1 ? 0 : 1;
  const bool by_index = targets.dims() != of.dims();
  return in_floats(
      [&](const Tensor& x) {
        const Tensor logs = log_softmax(x, axis);
        if (by_index) return nll_loss(logs, targets, how);
        const int64_t classes = x.dims()[static_cast<size_t>(axis)];
        Tensor t =
            wide(targets) * (1 - how.smoothing) + how.smoothing / static_cast<float>(classes);
        if (how.weight != nullptr) t = t * by_channel(x, *how.weight);
        const Tensor each = -sum(logs * t, {axis});
        return reduced(each, how.reduction);
      },
      of);
}

Tensor addmm(const Tensor& b, const Tensor& x, const Tensor& z, float beta, float alpha) {
  return in_floats([&](const Tensor& b, const Tensor& x,
                       const Tensor& z) { return b * beta + matmul(x, z) * alpha; },
                   b, x, z);
}
Tensor bilinear(const Tensor& x, const Tensor& z, const Tensor& weight, const Tensor* bias) {
  return in_floats(
      [&](const Tensor& x, const Tensor& z, const Tensor& w) {
        // x W_k for each result k, then the product with z.
        const Tensor rows = unsqueeze(unsqueeze(x, -2), -2);
        const Tensor y = sum(squeeze(matmul(rows, w), -2) * unsqueeze(z, -2), {-1});
        return bias == nullptr ? y : y + wide(*bias);
      },
      x, z, weight);
}

namespace {

// Axes of x by the labels `order`; of a label that stands twice the diagonal.
Tensor by_labels(Tensor x, std::string labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    const size_t again = labels.find(labels[i], i + 1);
    if (again == labels.npos) continue;
    x = diagonal(x, 0, static_cast<int64_t>(i), static_cast<int64_t>(again));
    const char label = labels[i];
    labels.erase(again, 1);
    labels.erase(i, 1);
    labels += label;
    i = static_cast<size_t>(-1);
  }
  std::string sorted = labels;
  std::ranges::sort(sorted);
  Axes order;
  for (const char label : sorted) order.push_back(static_cast<int64_t>(labels.find(label)));
  return permute(x, order);
}
std::string once(std::string labels) {
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  return labels;
}

}  // namespace

Tensor einsum(std::string_view equation, const Tensor& of, const Tensor* with) {
  const size_t arrow = equation.find("->"), comma = equation.find(',');
  const std::string first(equation.substr(0, std::min(comma, arrow)));
  const std::string second(comma == equation.npos ? ""
                                                  : equation.substr(comma + 1, arrow - comma - 1));
  if (arrow == equation.npos || (with == nullptr) != (comma == equation.npos) ||
      first.size() != of.dims().size() ||
      (with != nullptr && second.size() != with->dims().size())) {
    throw Error(
        ErrorKind::kShape,
        cat("[einsum] expected a label for each axis and \"->\", got \"", equation, "\" of ",
            to_string(of.dims()), with == nullptr ? "" : cat(" and ", to_string(with->dims()))));
  }
  const std::string out(equation.substr(arrow + 2));
  std::map<char, int64_t> sizes;
  const auto read = [&](const Tensor& x, const std::string& labels) {
    for (size_t i = 0; i < labels.size(); ++i) {
      const auto [at, fresh] = sizes.try_emplace(labels[i], x.dims()[i]);
      if (!fresh && at->second != x.dims()[i]) refuse("einsum", "one size a label", {&x.dims()});
    }
  };
  read(of, first);
  if (with != nullptr) read(*with, second);
  // Labels of both operands and the result are a batch, those of both alone are summed in products.
  std::string batch, summed, rows, columns;
  const std::string a = once(first), b = once(second);
  for (const char label : a) {
    const bool there = b.find(label) != b.npos, stays = out.find(label) != out.npos;
    if (there) (stays ? batch : summed) += label;
    if (!there && stays) rows += label;
  }
  for (const char label : b) {
    if (a.find(label) == a.npos && out.find(label) != out.npos) columns += label;
  }
  // An operand's axes as [batch, from, to], others summed.
  const auto laid = [&](const Tensor& x, const std::string& labels, const std::string& from,
                        const std::string& to) {
    const std::string own = once(labels), wanted = batch + from + to;
    Tensor y = by_labels(x, labels);
    Axes gone;
    std::string left;
    for (size_t i = 0; i < own.size(); ++i) {
      if (wanted.find(own[i]) == wanted.npos)
        gone.push_back(static_cast<int64_t>(i));
      else
        left += own[i];
    }
    if (!gone.empty()) y = sum(y, gone);
    Axes order;
    for (const char label : wanted) order.push_back(static_cast<int64_t>(left.find(label)));
    return permute(y, order);
  };
  const auto product = [&](const std::string& labels) {
    int64_t n = 1;
    for (const char label : labels) n *= sizes.at(label);
    return n;
  };
  std::string made = batch + rows + columns;
  Tensor y = laid(of, first, rows, summed);
  if (with != nullptr) {
    const int64_t n = product(batch), k = product(summed);
    y = matmul(reshape(y, {n, product(rows), k}),
               reshape(laid(*with, second, summed, columns), {n, k, product(columns)}));
    Dims dims;
    for (const char label : made) dims.push_back(sizes.at(label));
    y = reshape(y, dims);
  }
  Axes order;
  for (const char label : out) {
    const size_t at = made.find(label);
    if (at == made.npos) {
      throw Error(ErrorKind::kShape, cat("[einsum] '", label,
                                         "' of the result is in no operand of \"", equation, "\""));
    }
    order.push_back(static_cast<int64_t>(at));
  }
  return permute(y, order);
}

Tensor tensordot(const Tensor& x, const Tensor& z, int64_t axes) {
  const auto n = static_cast<std::ptrdiff_t>(axes);
  const Dims &a = x.dims(), &b = z.dims();
  if (axes < 0 || a.size() < static_cast<size_t>(axes) || b.size() < static_cast<size_t>(axes) ||
      !std::equal(a.end() - n, a.end(), b.begin())) {
    refuse("tensordot", cat(axes, " equal axes"), {&a, &b});
  }
  Dims dims(a.begin(), a.end() - n);
  dims.insert(dims.end(), b.begin() + n, b.end());
  const int64_t k = count_of({b.begin(), b.begin() + n});
  return reshape(matmul(reshape(x, {count_of({a.begin(), a.end() - n}), k}),
                        reshape(z, {k, count_of({b.begin() + n, b.end()})})),
                 dims);
}
Tensor kron(const Tensor& x, const Tensor& z) {
  const size_t axes = std::max(x.dims().size(), z.dims().size());
  Dims a(axes - x.dims().size(), 1), b(axes - z.dims().size(), 1), wide_a, wide_b, dims;
  a.insert(a.end(), x.dims().begin(), x.dims().end());
  b.insert(b.end(), z.dims().begin(), z.dims().end());
  for (size_t i = 0; i < axes; ++i) {
    wide_a.insert(wide_a.end(), {a[i], 1});
    wide_b.insert(wide_b.end(), {1, b[i]});
    dims.push_back(a[i] * b[i]);
  }
  return reshape(reshape(x, wide_a) * reshape(z, wide_b), dims);
}

}  // namespace split
