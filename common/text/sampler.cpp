#include "text/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"

namespace split {
namespace {

template <typename... Args>
[[noreturn]] void fail(const Args&... what) {
  throw Error(ErrorKind::kInput, cat("[sampler] ", what...));
}

void check_logits(std::span<const float> logits) {
  if (logits.empty()) fail("logits: expected at least one, got none");
  constexpr uint32_t kSpecial = 0x7f800000;  // the exponent of what is no number
  uint32_t special = 0;
  for (const float logit : logits) {
    special |= (std::bit_cast<uint32_t>(logit) & kSpecial) == kSpecial ? 1u : 0u;
  }
  if (special == 0) return;
  for (size_t id = 0; id < logits.size(); ++id) {
    if (!std::isfinite(logits[id])) {
      fail("logits: expected finite numbers, got ", logits[id], " for id ", id);
    }
  }
}

void check_id(std::span<const float> logits, int32_t id, const char* where) {
  if (id < 0 || static_cast<size_t>(id) >= logits.size()) {
    fail(where, ": expected an id from 0 to ", logits.size() - 1, ", got ", id);
  }
}

struct Candidate {
  double value;  // a score, then its exponential
  int32_t id;
};

// Larger values first, smaller ids first among equals: a total order, so that no result depends on
// a sort's moods.
constexpr auto kBetter = [](const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
};

constexpr auto kById = [](const Candidate& a, const Candidate& b) { return a.id < b.id; };

std::vector<Candidate> candidates_of(std::span<const float> logits) {
  std::vector<Candidate> candidates(logits.size());
  for (size_t id = 0; id < logits.size(); ++id)
    candidates[id] = {logits[id], static_cast<int32_t>(id)};
  return candidates;
}

// log(sum(exp(logits)))
double log_sum(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

constexpr size_t kBlockIds = 128;

// The largest of each kBlockIds logits, in lanes that a compiler makes vectors of.
std::vector<float> block_maxima(std::span<const float> logits) {
  std::vector<float> maxima((logits.size() + kBlockIds - 1) / kBlockIds);
  for (size_t block = 0; block < maxima.size(); ++block) {
    const auto part = logits.subspan(block * kBlockIds)
                          .first(std::min(kBlockIds, logits.size() - block * kBlockIds));
    std::array<float, 16> best;
    best.fill(-std::numeric_limits<float>::infinity());
    size_t i = 0;
    for (; i + best.size() <= part.size(); i += best.size()) {
      for (size_t j = 0; j < best.size(); ++j) {
        best[j] = part[i + j] > best[j] ? part[i + j] : best[j];
      }
    }
    for (; i < part.size(); ++i) best[0] = std::max(best[0], part[i]);
    maxima[block] = *std::max_element(best.begin(), best.end());
  }
  return maxima;
}

// The logits after the penalty: once, however often an id occurs in history.
std::vector<Candidate> penalised(std::span<const float> logits, std::span<const int32_t> history,
                                 double penalty) {
  std::vector<Candidate> values = candidates_of(logits);
  for (const int32_t id : history) {
    check_id(logits, id, "history");
    const double logit = logits[static_cast<size_t>(id)];
    values[static_cast<size_t>(id)].value = logit > 0 ? logit / penalty : logit * penalty;
  }
  return values;
}

// The same of those alone that can be among the `count` best, in order of id.
std::vector<Candidate> contenders(std::span<const float> logits, std::span<const int32_t> history,
                                  double penalty, size_t count) {
  if (count > logits.size() / kBlockIds) return penalised(logits, history, penalty);
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  std::vector<float> others(logits.begin(), logits.end());  // without what the penalty changes
  std::vector<Candidate> all;
  for (const int32_t id : history) {
    check_id(logits, id, "history");
    const double logit = std::exchange(others[static_cast<size_t>(id)], kNone);
    if (logit == kNone) continue;
    all.push_back({logit > 0 ? logit / penalty : logit * penalty, id});
  }
  const std::vector<float> maxima = block_maxima(others);
  std::vector<float> best = maxima;
  std::nth_element(best.begin(), best.begin() + static_cast<ptrdiff_t>(count - 1), best.end(),
                   std::greater<>());
  const double floor = best[count - 1];  // that so many reach
  if (!std::isfinite(floor)) return penalised(logits, history, penalty);
  std::erase_if(all, [&](const Candidate& c) { return c.value < floor; });
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < floor) continue;
    const size_t end = std::min(others.size(), (block + 1) * kBlockIds);
    for (size_t id = block * kBlockIds; id < end; ++id) {
      if (others[id] >= floor) all.push_back({others[id], static_cast<int32_t>(id)});
    }
  }
  std::sort(all.begin(), all.end(), kById);
  return all;
}

double sum_of(const std::vector<Candidate>& candidates) {
  double sum = 0;
  for (const Candidate& c : candidates) sum += c.value;
  return sum;
}

// Cuts to the fewest best whose weights reach top_p of their sum, best first.
void keep_top_p(std::vector<Candidate>& weights, double top_p) {
  const double total = sum_of(weights);
  // What is lighter than (1 - top_p) / count of the total weighs less than 1 - top_p altogether, so
  // it is never needed. The best is at least as heavy as that.
  const Candidate best = *std::min_element(weights.begin(), weights.end(), kBetter);
  const double floor =
      std::min(best.value, (1 - top_p) * total / static_cast<double>(weights.size()));
  std::erase_if(weights, [&](const Candidate& c) { return c.value < floor; });
  double sum = 0;
  size_t kept = 0, sorted = 0;
  while (kept < weights.size() && (kept == 0 || sum < top_p * total)) {
    if (kept == sorted) {  // sort as little as is needed: some, then four times as many
      sorted = std::min(weights.size(), std::max<size_t>(128, 4 * sorted));
      const auto begin = weights.begin() + static_cast<ptrdiff_t>(kept);
      const auto end = weights.begin() + static_cast<ptrdiff_t>(sorted);
      std::nth_element(begin, end - 1, weights.end(), kBetter);
      std::sort(begin, end, kBetter);
    }
    sum += weights[kept++].value;
  }
  weights.resize(kept);
}

// Draws from logits after the penalty, in order of id: at least those that top-k leaves.
int32_t draw(std::vector<Candidate> candidates, const SamplingOptions& options, uint64_t position) {
  const Candidate best = *std::min_element(candidates.begin(), candidates.end(), kBetter);
  if (options.temperature == 0) return best.id;
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < candidates.size()) {
    const auto end = candidates.begin() + options.top_k;
    std::nth_element(candidates.begin(), end - 1, candidates.end(), kBetter);
    candidates.erase(end, candidates.end());
    // The sums below run by id, not in the order that the selection left.
    std::sort(candidates.begin(), candidates.end(), kById);
  }
  for (Candidate& c : candidates) c.value = std::exp((c.value - best.value) / options.temperature);
  if (options.top_p < 1) keep_top_p(candidates, options.top_p);

  const double target = uniform_at(options.seed, position) * sum_of(candidates);
  double sum = 0;
  int32_t drawn = candidates.front().id;
  for (const Candidate& c : candidates) {
    if (c.value == 0) continue;
    drawn = c.id;
    sum += c.value;
    if (sum > target) break;
  }
  return drawn;
}

}  // namespace

void SamplingOptions::validate() const {
  // Written so that NaN fails.
  if (!(temperature >= 0 && std::isfinite(temperature))) {
    fail("temperature: expected a number of at least 0, got ", temperature);
  }
  if (top_k < 0) fail("top_k: expected at least 0, got ", top_k);
  if (!(top_p >= 0 && top_p <= 1)) fail("top_p: expected a number from 0 to 1, got ", top_p);
  if (!(repetition_penalty > 0 && std::isfinite(repetition_penalty))) {
    fail("repetition_penalty: expected a number above 0, got ", repetition_penalty);
  }
}

int32_t sample(std::span<const float> logits, std::span<const int32_t> history,
               const SamplingOptions& options, uint64_t position) {
  options.validate();
  check_logits(logits);
  const size_t wanted = options.temperature == 0 ? 1 : static_cast<size_t>(options.top_k);
  return draw(
      contenders(logits, history, options.repetition_penalty, wanted > 0 ? wanted : logits.size()),
      options, position);
}

bool top_suffices(const SamplingOptions& options, size_t count) {
  const bool few = options.temperature == 0 ||
                   (options.top_k > 0 && static_cast<size_t>(options.top_k) <= count);
  return few && options.repetition_penalty == 1;
}

int32_t sample_top(std::span<const float> top, const SamplingOptions& options, uint64_t position) {
  options.validate();
  const auto logits = top.first(top.size() / 2), ids = top.subspan(logits.size());
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto id = static_cast<int32_t>(ids[i]);
    if (!std::isfinite(logits[i])) {
      fail("logits: expected finite numbers, got ", logits[i], " for id ", id);
    }
    candidates.push_back({logits[i], id});
  }
  std::sort(candidates.begin(), candidates.end(), kById);
  return draw(std::move(candidates), options, position);
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n) {
  check_logits(logits);
  if (n < 0) fail("logprobs: expected at least 0, got ", n);
  const double normaliser = log_sum(logits);
  std::vector<Candidate> candidates = candidates_of(logits);
  const size_t count = std::min(candidates.size(), static_cast<size_t>(n));
  std::partial_sort(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(count),
                    candidates.end(), kBetter);
  std::vector<TokenLogprob> top;
  for (size_t i = 0; i < count; ++i) {
    top.push_back({candidates[i].id, static_cast<float>(candidates[i].value - normaliser)});
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
