#include "text/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/sort.h"
#include "text/draw.h"

namespace split {
namespace {

template <typename... Args>
[[noreturn]] void fail(const Args&... what) {
  throw Error(ErrorKind::kInput, cat("[sampler] ", what...));
}

// Fails for the model's weights or the machine that computed, not for the request.
[[noreturn]] void fail_not_finite(float logit, size_t id) {
  throw Error(ErrorKind::kIntegrity,
              cat("[sampler] overflow: expected finite logits, got ", logit, " for id ", id));
}

void check_logits(std::span<const float> logits) {
  if (logits.empty()) fail("logits: expected at least one, got none");
  constexpr uint32_t kSpecial = 0x7f800000;  // the exponent of NaN and infinity
  uint32_t special = 0;
  for (const float logit : logits) {
    special |= (std::bit_cast<uint32_t>(logit) & kSpecial) == kSpecial ? 1u : 0u;
  }
  if (special == 0) return;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) fail_not_finite(logits[id], id);
  }
}

void check_id(std::span<const float> logits, int32_t id, const char* where) {
  if (id < 0 || static_cast<size_t>(id) >= logits.size()) {
    fail(where, ": expected an id from 0 to ", logits.size() - 1, ", got ", id);
  }
}

// Candidates in order of id: values[i] belongs to ids[i], or to id i without ids. Indices stand for
// ids below, so that of equal values the smaller index is the better.
struct Candidates {
  std::span<const float> values;
  std::span<const int32_t> ids;

  int32_t id(size_t index) const { return ids.empty() ? static_cast<int32_t>(index) : ids[index]; }
};

// The logits after the penalties and the bias.
std::vector<float> changed(std::span<const float> logits, std::span<const int32_t> history,
                           size_t generated, const SamplingOptions& options) {
  constexpr double kMost = std::numeric_limits<float>::max();
  std::vector<float> values(logits.begin(), logits.end());
  const auto set = [&](int32_t id, double value) {
    values[static_cast<size_t>(id)] = static_cast<float>(std::clamp(value, -kMost, kMost));
  };
  const auto at = [&](int32_t id) { return double{values[static_cast<size_t>(id)]}; };
  const double penalty = options.repetition_penalty;
  const size_t recent = options.repeat_last_n < 0
                            ? history.size()
                            : std::min(history.size(), static_cast<size_t>(options.repeat_last_n));
  for (const int32_t id : penalty == 1 ? std::span<const int32_t>() : history.last(recent)) {
    const double logit = logits[static_cast<size_t>(id)];
    set(id, logit > 0 ? logit / penalty : logit * penalty);
  }
  if (options.presence_penalty != 0 || options.frequency_penalty != 0) {
    const auto last = history.last(generated);
    std::vector<int32_t> said(last.begin(), last.end());
    sort_stably(said);
    for (auto from = said.begin(); from != said.end();) {
      const auto to = std::upper_bound(from, said.end(), *from);
      // Products of two floats are exact in double, so that all machines have equal bits.
      const double often = static_cast<double>(to - from) * double{options.frequency_penalty};
      set(*from, at(*from) - double{options.presence_penalty} - often);
      from = to;
    }
  }
  for (const auto& [id, bias] : options.logit_bias) set(id, at(id) + double{bias});
  return values;
}

struct Chosen {
  std::vector<float> values;
  std::vector<int32_t> ids;

  void add(const Candidates& from, size_t index) {
    values.push_back(from.values[index]);
    ids.push_back(from.id(index));
  }
  Candidates candidates() const { return {values, ids}; }
};

// log(sum(exp(logits)))
double log_sum(std::span<const float> logits) {
  const float best = best_of(logits, 1)[0].value;
  return best + std::log(TokenMasses(logits, best, 1).total);
}

// Draws from logits after the penalty: at least those that top-k leaves.
int32_t draw(Candidates candidates, const SamplingOptions& options, uint64_t position) {
  const size_t wanted = options.temperature == 0 ? 1 : static_cast<size_t>(options.top_k);
  Chosen top, likely;
  if (wanted > 0 && wanted < candidates.values.size()) {
    std::vector<Candidate> best = best_of(candidates.values, wanted);
    // Back to the order of ids, in which the sums below run.
    sort_stably(best, {}, &Candidate::index);
    for (const Candidate& c : best) top.add(candidates, static_cast<size_t>(c.index));
    candidates = top.candidates();
  }
  const std::vector<Candidate> best = best_of(candidates.values, 1);
  if (options.temperature == 0) return candidates.id(static_cast<size_t>(best[0].index));
  TokenMasses weights(candidates.values, best[0].value, options.temperature);
  double top_p = options.top_p;
  if (options.min_p > 0) {
    const TokenMasses plain(candidates.values, best[0].value, 1);
    for (size_t i = 0; i < plain.each.size(); ++i) {
      if (plain.each[i] >= options.min_p) likely.add(candidates, i);
    }
    candidates = likely.candidates();
    // Both keep the best: top-p keeps the fraction of the rest that it was of all.
    const double total = weights.total;
    weights = TokenMasses(candidates.values, best[0].value, options.temperature);
    if (top_p < 1) top_p = top_p * total / weights.total;
  }
  const double uniform = uniform_at(options.seed, position);
  return candidates.id(top_p < 1 ? draw_from_top(candidates.values, best[0].value,
                                                 options.temperature, weights, top_p, uniform)
                                 : draw_from_all(weights, uniform));
}

}  // namespace

void SamplingOptions::validate() const {
  // Written so that NaN fails.
  if (!(temperature >= 0 && std::isfinite(temperature))) {
    fail("temperature: expected a number of at least 0, got ", temperature);
  }
  if (top_k < 0) fail("top_k: expected at least 0, got ", top_k);
  if (!(top_p >= 0 && top_p <= 1)) fail("top_p: expected a number from 0 to 1, got ", top_p);
  if (!(min_p >= 0 && min_p <= 1)) fail("min_p: expected a number from 0 to 1, got ", min_p);
  if (!(repetition_penalty > 0 && std::isfinite(repetition_penalty))) {
    fail("repetition_penalty: expected a number above 0, got ", repetition_penalty);
  }
  if (repeat_last_n < -1) fail("repeat_last_n: expected at least -1, got ", repeat_last_n);
  const auto check_finite = [](const char* name, float value) {
    if (!std::isfinite(value)) fail(name, ": expected a finite number, got ", value);
  };
  check_finite("presence_penalty", presence_penalty);
  check_finite("frequency_penalty", frequency_penalty);
  for (const LogitBias& one : logit_bias) check_finite("logit_bias", one.bias);
}

bool SamplingOptions::changes_logits() const {
  return (repetition_penalty != 1 && repeat_last_n != 0) || presence_penalty != 0 ||
         frequency_penalty != 0 || !logit_bias.empty();
}

int32_t sample(std::span<const float> logits, std::span<const int32_t> history,
               const SamplingOptions& options, uint64_t position, size_t generated,
               std::span<const uint8_t> allowed) {
  options.validate();
  check_logits(logits);
  CHECK(generated <= history.size());
  for (const int32_t id : history) check_id(logits, id, "history");
  for (const LogitBias& one : options.logit_bias) check_id(logits, one.id, "logit_bias");
  std::vector<float> values;
  if (options.changes_logits()) logits = values = changed(logits, history, generated, options);
  if (allowed.empty()) return draw({logits, {}}, options, position);
  Chosen open;
  for (size_t id = 0; id < std::min(logits.size(), allowed.size()); ++id) {
    if (allowed[id] != 0) open.add({logits, {}}, id);
  }
  if (open.ids.empty()) fail("allowed: expected at least one id, got none");
  return draw(open.candidates(), options, position);
}

bool top_suffices(const SamplingOptions& options, size_t count) {
  const bool few = options.temperature == 0 ||
                   (options.top_k > 0 && static_cast<size_t>(options.top_k) <= count);
  return few && !options.changes_logits();
}

int32_t sample_top(std::span<const float> top, const SamplingOptions& options, uint64_t position) {
  options.validate();
  const auto logits = top.first(top.size() / 2), ids = top.subspan(logits.size());
  std::vector<std::pair<int32_t, float>> by_id;
  for (size_t i = 0; i < logits.size(); ++i) {
    by_id.emplace_back(static_cast<int32_t>(ids[i]), logits[i]);
    if (!std::isfinite(logits[i])) {
      fail_not_finite(logits[i], static_cast<size_t>(by_id.back().first));
    }
  }
  sort_stably(by_id);
  std::vector<float> values;
  std::vector<int32_t> own;
  for (const auto& [id, value] : by_id) {
    own.push_back(id);
    values.push_back(value);
  }
  return draw({values, own}, options, position);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n) {
  check_logits(logits);
  if (n < 0) fail("logprobs: expected at least 0, got ", n);
  const double normaliser = log_sum(logits);
  std::vector<Candidate> best = best_of(logits, static_cast<size_t>(n));
  sort_best(best);
  std::vector<TokenLogprob> top;
  for (const Candidate& c : best) {
    top.push_back({c.index, static_cast<float>(c.value - normaliser)});
  }
  return top;
}

float logprob_of(std::span<const float> logits, int32_t id) {
  check_logits(logits);
  check_id(logits, id, "logprob");
  return static_cast<float>(logits[static_cast<size_t>(id)] - log_sum(logits));
}

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0], product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

double uniform_at(uint64_t seed, uint64_t position) {
  const auto bits =
      philox4x32({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), 0, 0},
                 {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return static_cast<double>((uint64_t{bits[0]} << 32 | bits[1]) >> 11) * 0x1p-53;
}

}  // namespace split
