// Sentences: ids of pairs, and the embedding or score of rows.
#include <algorithm>
#include <cmath>

#include "run/sentences.h"

namespace split {
namespace {

double activated(const std::string& name, double x) {
  if (name == "Tanh") return std::tanh(x);
  if (name == "ReLU") return std::max(x, 0.0);
  if (name == "GELU") return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (name == "SiLU") return x / (1 + std::exp(-x));
  if (name == "Sigmoid") return 1 / (1 + std::exp(-x));
  return x;
}
// (x - mean) / sqrt(variance + eps) * weight.
void norm(std::span<float> x, std::span<const float> weight, double eps) {
  const auto n = static_cast<double>(x.size());
  double sum = 0, squares = 0;
  for (const float value : x) sum += double{value};
  const double mean = sum / n;
  for (const float value : x) squares += (double{value} - mean) * (double{value} - mean);
  const double scale = 1 / std::sqrt(squares / n + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>((double{x[i]} - mean) * scale * double{weight[i]});
  }
}

// Sums each channel over the rows, each times weight(row), and divides by `divisor`.
template <typename Weight>
std::vector<float> weighted(std::span<const float> rows, size_t channels, double divisor,
                            const Weight& weight) {
  std::vector<float> out(channels);
  for (size_t c = 0; c < channels; ++c) {
    double sum = 0;
    for (size_t row = 0; row < rows.size() / channels; ++row) {
      sum += double{rows[row * channels + c]} * weight(row);
    }
    out[c] = static_cast<float>(sum / divisor);
  }
  return out;
}

std::vector<float> pooled(PoolMode mode, std::span<const float> rows, size_t channels) {
  const size_t count = rows.size() / channels;
  const auto row = [&](size_t at) {
    const auto values = rows.subspan(at * channels, channels);
    return std::vector<float>(values.begin(), values.end());
  };
  const auto one = [](size_t) { return 1.0; };
  const auto n = static_cast<double>(count);
  switch (mode) {
    case PoolMode::kCls:
      return row(0);
    case PoolMode::kLast:
      return row(count - 1);
    case PoolMode::kMean:
      return weighted(rows, channels, n, one);
    case PoolMode::kMeanSqrtLength:
      return weighted(rows, channels, std::sqrt(n), one);
    case PoolMode::kWeightedMean:
      return weighted(rows, channels, n * (n + 1) / 2,
                      [](size_t at) { return static_cast<double>(at + 1); });
    case PoolMode::kMax:
      break;
  }
  std::vector<float> out = row(0);
  for (size_t at = channels; at < rows.size(); ++at) {
    out[at % channels] = std::max(out[at % channels], rows[at]);
  }
  return out;
}

}  // namespace

void to_unit_length(std::span<float> values) {
  double sum = 0;
  for (const float x : values) sum += double{x} * double{x};
  if (sum == 0) return;
  for (float& x : values) x = static_cast<float>(x / std::sqrt(sum));
}

std::vector<float> mean_row(std::span<const float> rows, size_t channels) {
  return pooled(PoolMode::kMean, rows, channels);
}

SentenceIds Sentences::pair(const Tokenizer& tokenizer, std::span<const int32_t> query,
                            std::span<const int32_t> document, bool truncate) const {
  const auto before = tokenizer.before(), between = tokenizer.between(),
             behind = tokenizer.behind();
  const size_t added = before.size() + between.size() + behind.size();
  if (query.size() + added >= max_tokens_) {
    throw Error(ErrorKind::kInput,
                cat("expected fewer than ", max_tokens_ - std::min<size_t>(added, max_tokens_),
                    " tokens, so that there is room for a document, got ", query.size()),
                "query");
  }
  const size_t most = max_tokens_ - added;
  // Cuts like the library tokenizers: the shorter one keeps all that it may.
  size_t shorter = std::min(query.size(), document.size());
  size_t longer = std::max(query.size(), document.size());
  SentenceIds made;
  if (shorter + longer > most) {
    if (!truncate) throw InputTooLong(max_tokens_, shorter + longer + added);
    made.truncated = true;
    longer = shorter > most ? shorter : std::max(shorter, most - shorter);
    if (shorter + longer > most) shorter = most / 2, longer = most - shorter;
    const bool query_is_longer = query.size() > document.size();
    query = query.first(query_is_longer ? longer : shorter);
    document = document.first(query_is_longer ? shorter : longer);
  }
  const std::span<const int32_t> parts[] = {before, query, between, document, behind};
  for (const auto part : parts) made.ids.insert(made.ids.end(), part.begin(), part.end());
  if (types_) made.second = static_cast<uint32_t>(before.size() + query.size() + between.size());
  return made;
}

std::vector<float> Sentences::pool(std::span<const float> rows, bool normalize) const {
  CHECK(!rows.empty() && rows.size() % channels_ == 0);
  std::vector<float> x;
  for (const PoolMode mode : modes_) {
    const std::vector<float> part = pooled(mode, rows, channels_);
    x.insert(x.end(), part.begin(), part.end());
  }
  for (const Module& module : modules_) {
    if (!module.dense) {
      module.norm.empty() ? to_unit_length(x) : norm(x, module.norm, module.eps);
      continue;
    }
    const Dense& dense = *module.dense;
    std::vector<float> y(dense.outputs);
    for (size_t out = 0; out < y.size(); ++out) {
      double sum = dense.bias.empty() ? 0 : double{dense.bias[out]};
      for (size_t in = 0; in < x.size(); ++in) {
        sum += double{x[in]} * double{dense.weight[out * dense.inputs + in]};
      }
      y[out] = static_cast<float>(activated(dense.activation, sum));
    }
    x = std::move(y);
  }
  if (normalize) to_unit_length(x);
  return x;
}

}  // namespace split
