#include "text/draw.h"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <limits>

namespace split {
namespace {

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

// e^x for x <= 0, to 1e-7 of it; 0 below -87. 2^k e^r with |r| <= ln 2 / 2, in operations that a
// compiler makes vectors of and that give the same bits everywhere.
float exponential(float x) {
  constexpr float kWhole = 12583039.0f;  // 1.5 * 2^23 + 127: the sum's low bits are k + 127
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

// Returns the first index whose weight takes the running sum, from `sum` on, above `target`; else
// the last one with a weight, or none.
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

}  // namespace

std::vector<Candidate> best_of(std::span<const float> values, size_t count) {
  if (count == 0) return {};
  // Few of many values reach the least of so many blocks' maxima.
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

void sort_best(std::span<Candidate> all) {
  std::make_heap(all.begin(), all.end(), kBetter);
  std::sort_heap(all.begin(), all.end(), kBetter);
}

TokenMasses::TokenMasses(std::span<const float> values, float best, double temperature)
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

size_t draw_from_all(const TokenMasses& weights, double uniform) {
  const double target = uniform * weights.total;
  const size_t block =
      reaching(weights.sums.size(), 0, target, [&](size_t i) { return weights.sums[i]; });
  double before = 0;
  for (size_t i = 0; i < block; ++i) before += weights.sums[i];
  const auto part = block_of(std::span(weights.each), block);
  return block * kBlockIds +
         reaching(part.size(), before, target, [&](size_t i) { return double{part[i]}; });
}

// Sorts values into buckets, each a sixty-fourth of e's exponent below the one before. Sums
// buckets, some at a time, until they weigh enough; sorts only the buckets in which the fewest end
// and in which the draw lies.
size_t draw_from_top(std::span<const float> values, float best, double temperature,
                     const TokenMasses& weights, double top_p, double uniform) {
  constexpr size_t kBuckets = 2048, kAtOnce = 256;  // the last one has all lighter values
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
    sort_best(inside);
    return inside;
  };
  const auto weight_of = [&](const Candidate& c) {
    return double{weights.each[static_cast<size_t>(c.index)]};
  };

  // The bucket in which the fewest end, its values, and the weight of all. Where rounding keeps the
  // sum below the target, these are all of the last.
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

}  // namespace split
