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

// What may be drawn, in order of id: values[i] is of ids[i], or of id i where there are no ids. An
// index stands for an id below, so that of equal values the smaller index is the better.
struct Candidates {
  std::span<const float> values;
  std::span<const int32_t> ids;

  int32_t id(size_t index) const { return ids.empty() ? static_cast<int32_t>(index) : ids[index]; }
};

struct Candidate {
  float value;
  int32_t index;
};

// Larger values first, smaller ids first among equals: a total order, so that no result depends on
// a sort's moods.
constexpr auto kBetter = [](const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.index < b.index;
};

constexpr size_t kBlockIds = 128;

size_t blocks_of(size_t n) { return (n + kBlockIds - 1) / kBlockIds; }

template <typename T>
std::span<T> block_of(std::span<T> all, size_t block) {
  return all.subspan(block * kBlockIds).first(std::min(kBlockIds, all.size() - block * kBlockIds));
}

// The largest of each kBlockIds values, in lanes that a compiler makes vectors of.
std::vector<float> block_maxima(std::span<const float> values) {
  std::vector<float> maxima(blocks_of(values.size()));
  for (size_t block = 0; block < maxima.size(); ++block) {
    const auto part = block_of(values, block);
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

// The `count` best, in no order.
std::vector<Candidate> best_of(std::span<const float> values, size_t count) {
  if (count == 0) return {};
  // Of many values those that reach what so many blocks do are few.
  const std::vector<float> maxima = block_maxima(values);
  float floor = -std::numeric_limits<float>::infinity();
  if (count < maxima.size()) {
    std::vector<float> best = maxima;
    const auto last = best.begin() + static_cast<ptrdiff_t>(count - 1);
    std::nth_element(best.begin(), last, best.end(), std::greater<>());
    floor = *last;
  }
  std::vector<Candidate> all;
  for (size_t block = 0; block < maxima.size(); ++block) {
    if (maxima[block] < floor) continue;
    const auto part = block_of(values, block);
    for (size_t i = 0; i < part.size(); ++i) {
      if (part[i] >= floor) all.push_back({part[i], static_cast<int32_t>(block * kBlockIds + i)});
    }
  }
  if (count < all.size()) {
    const auto last = all.begin() + static_cast<ptrdiff_t>(count);
    std::nth_element(all.begin(), last - 1, all.end(), kBetter);
    all.erase(last, all.end());
  }
  return all;
}

// The logits after the penalty: once, however often an id occurs in history.
std::vector<float> penalised(std::span<const float> logits, std::span<const int32_t> history,
                             double penalty) {
  constexpr double kMost = std::numeric_limits<float>::max();
  std::vector<float> values(logits.begin(), logits.end());
  for (const int32_t id : history) {
    const double logit = logits[static_cast<size_t>(id)];
    const double value = logit > 0 ? logit / penalty : logit * penalty;
    values[static_cast<size_t>(id)] = static_cast<float>(std::clamp(value, -kMost, kMost));
  }
  return values;
}

// e^x for x <= 0, to 1e-7 of it; 0 below -87. 2^k e^r with |r| <= ln 2 / 2, in operations that a
// compiler makes vectors of and that give the same bits everywhere.
float exponential(float x) {
  constexpr float kWhole = 12583039.0f;  // 1.5 * 2^23 + 127: of the sum the low bits are k + 127
  const float c = x < -87.0f ? -87.0f : x;
  const float shifted = c * 1.442695041f + kWhole;
  const float k = shifted - kWhole;
  const float r = c - k * 0.693359375f + k * 2.12194440e-4f;
  float p = 1.393370113e-3f * r + 8.363181008e-3f;  // the polynomial of ops.def
  p = p * r + 4.166646446e-2f;
  p = p * r + 1.666657697e-1f;
  p = p * r + 0.5f;
  p = p * r * r + r + 1.0f;
  const float y = p * std::bit_cast<float>(std::bit_cast<uint32_t>(shifted) << 23);
  return x < -87.0f ? 0.0f : y;
}

// What each value weighs beside the best, e^((value - best) / temperature), and the sums of each
// kBlockIds of them and of all.
struct Weights {
  Weights(std::span<const float> values, float best, double temperature)
      : each(values.size()), sums(blocks_of(values.size())) {
    const double scale = 1 / temperature;
    for (size_t block = 0; block < sums.size(); ++block) {
      const auto from = block_of(values, block);
      const auto to = block_of(std::span(each), block);
      for (size_t i = 0; i < to.size(); ++i) {
        to[i] = exponential(static_cast<float>((double{from[i]} - double{best}) * scale));
      }
      std::array<double, 4> chains{};
      size_t i = 0;
      for (; i + chains.size() <= to.size(); i += chains.size()) {
        for (size_t j = 0; j < chains.size(); ++j) chains[j] += double{to[i + j]};
      }
      for (; i < to.size(); ++i) chains[0] += double{to[i]};
      sums[block] = (chains[0] + chains[2]) + (chains[1] + chains[3]);
      total += sums[block];
    }
  }
  std::vector<float> each;
  std::vector<double> sums;
  double total = 0;
};

// log(sum(exp(logits)))
double log_sum(std::span<const float> logits) {
  const float best = best_of(logits, 1)[0].value;
  return best + std::log(Weights(logits, best, 1).total);
}

// The first whose weight takes the running sum, from `sum` on, above `target`; else the last that
// weighs anything, or none.
template <typename Weight>
size_t reaching(size_t count, double sum, double target, const Weight& weight) {
  size_t found = count;
  for (size_t i = 0; i < count; ++i) {
    const double w = weight(i);
    if (w == 0) continue;
    found = i;
    sum += w;
    if (sum > target) break;
  }
  return found;
}

// The index at `uniform` of all weights, in order of id.
size_t draw_from_all(const Weights& weights, double uniform) {
  const double target = uniform * weights.total;
  const size_t block =
      reaching(weights.sums.size(), 0, target, [&](size_t i) { return weights.sums[i]; });
  double before = 0;
  for (size_t i = 0; i < block; ++i) before += weights.sums[i];
  const auto part = block_of(std::span(weights.each), block);
  return block * kBlockIds +
         reaching(part.size(), before, target, [&](size_t i) { return double{part[i]}; });
}

// Calls found(index) for each bucket in [first, first + count), in order. Most blocks have none.
template <typename Found>
void each_within(std::span<const uint16_t> buckets, size_t first, size_t count,
                 const Found& found) {
  const auto within = [&](uint16_t bucket) {
    return static_cast<uint16_t>(bucket - static_cast<uint16_t>(first)) <
           static_cast<uint16_t>(count);
  };
  for (size_t block = 0; block < blocks_of(buckets.size()); ++block) {
    const auto part = block_of(buckets, block);
    uint16_t any = 0;
    for (const uint16_t bucket : part) any = static_cast<uint16_t>(any | (within(bucket) ? 1 : 0));
    for (size_t i = 0; any != 0 && i < part.size(); ++i) {
      if (within(part[i])) found(block * kBlockIds + i);
    }
  }
}

// The index at `uniform` of the fewest best whose weights reach top_p of their sum, best first.
//
// Values fall into buckets, each a sixty-fourth of e's exponent below the one before. Buckets are
// summed some at a time until they weigh enough; only those in which the fewest end and in which
// the draw lies are sorted.
size_t draw_from_top(std::span<const float> values, float best, double temperature,
                     const Weights& weights, double top_p, double uniform) {
  constexpr size_t kBuckets = 2048, kAtOnce = 256;  // the last has all that is lighter
  const auto scale =
      static_cast<float>(std::min<double>(std::numeric_limits<float>::max(), 64 / temperature));
  std::vector<uint16_t> buckets(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const float depth = (best - values[i]) * scale;
    buckets[i] =
        static_cast<uint16_t>(depth < kBuckets - 1 ? static_cast<int>(depth) : kBuckets - 1);
  }
  std::array<double, kBuckets> sums{};
  const auto sum_from = [&](size_t first) {
    each_within(buckets, first, kAtOnce,
                [&](size_t i) { sums[buckets[i]] += double{weights.each[i]}; });
  };
  const auto sorted = [&](size_t bucket) {
    std::vector<Candidate> inside;
    each_within(buckets, bucket, 1, [&](size_t i) {
      inside.push_back({values[i], static_cast<int32_t>(i)});
    });
    std::sort(inside.begin(), inside.end(), kBetter);
    return inside;
  };
  const auto weight_of = [&](const Candidate& c) {
    return double{weights.each[static_cast<size_t>(c.index)]};
  };

  // The bucket in which the fewest end, those of it, and what all weigh. Where rounding keeps the
  // sum from what is wanted, that is all of the last.
  const double wanted = top_p * weights.total;
  size_t end = 0;
  double before = 0;
  for (;; before += sums[end++]) {
    if (end % kAtOnce == 0) sum_from(end);
    if (end + 1 == kBuckets || !(before + sums[end] < wanted)) break;
  }
  std::vector<Candidate> inside = sorted(end);
  double sum = before;
  size_t kept = 0;
  while (kept < inside.size() && (sum < wanted || (end == 0 && kept == 0))) {
    sum += weight_of(inside[kept++]);
  }
  inside.resize(kept);

  const double target = uniform * sum, last = sum - before;
  const size_t bucket =
      reaching(end + 1, 0, target, [&](size_t i) { return i < end ? sums[i] : last; });
  before = 0;
  for (size_t i = 0; i < bucket; ++i) before += sums[i];
  if (bucket < end) inside = sorted(bucket);
  const size_t found =
      reaching(inside.size(), before, target, [&](size_t i) { return weight_of(inside[i]); });
  return static_cast<size_t>(inside[found].index);
}

// Draws from logits after the penalty: at least those that top-k leaves.
int32_t draw(Candidates candidates, const SamplingOptions& options, uint64_t position) {
  const size_t wanted = options.temperature == 0 ? 1 : static_cast<size_t>(options.top_k);
  std::vector<float> values;
  std::vector<int32_t> ids;
  if (wanted > 0 && wanted < candidates.values.size()) {
    std::vector<Candidate> best = best_of(candidates.values, wanted);
    // Back to the order of ids, in which the sums below run.
    std::sort(best.begin(), best.end(),
              [](const Candidate& a, const Candidate& b) { return a.index < b.index; });
    for (const Candidate& c : best) {
      values.push_back(c.value);
      ids.push_back(candidates.id(static_cast<size_t>(c.index)));
    }
    candidates = {values, ids};
  }
  const std::vector<Candidate> best = best_of(candidates.values, 1);
  if (options.temperature == 0) return candidates.id(static_cast<size_t>(best[0].index));
  const Weights weights(candidates.values, best[0].value, options.temperature);
  const double uniform = uniform_at(options.seed, position);
  return candidates.id(options.top_p < 1
                           ? draw_from_top(candidates.values, best[0].value, options.temperature,
                                           weights, options.top_p, uniform)
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
  if (!(repetition_penalty > 0 && std::isfinite(repetition_penalty))) {
    fail("repetition_penalty: expected a number above 0, got ", repetition_penalty);
  }
}

int32_t sample(std::span<const float> logits, std::span<const int32_t> history,
               const SamplingOptions& options, uint64_t position) {
  options.validate();
  check_logits(logits);
  for (const int32_t id : history) check_id(logits, id, "history");
  if (options.repetition_penalty == 1) return draw({logits, {}}, options, position);
  const std::vector<float> values = penalised(logits, history, options.repetition_penalty);
  return draw({values, {}}, options, position);
}

bool top_suffices(const SamplingOptions& options, size_t count) {
  const bool few = options.temperature == 0 ||
                   (options.top_k > 0 && static_cast<size_t>(options.top_k) <= count);
  return few && options.repetition_penalty == 1;
}

int32_t sample_top(std::span<const float> top, const SamplingOptions& options, uint64_t position) {
  options.validate();
  const auto logits = top.first(top.size() / 2), ids = top.subspan(logits.size());
  std::vector<std::pair<int32_t, float>> by_id;
  for (size_t i = 0; i < logits.size(); ++i) {
    by_id.emplace_back(static_cast<int32_t>(ids[i]), logits[i]);
    if (!std::isfinite(logits[i])) {
      fail("logits: expected finite numbers, got ", logits[i], " for id ", by_id.back().first);
    }
  }
  std::sort(by_id.begin(), by_id.end());
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
  std::sort(best.begin(), best.end(), kBetter);
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
