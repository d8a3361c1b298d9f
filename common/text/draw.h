// The sampler's draws: the best of many values, the weights of all, and the index at a number of
// [0, 1). Values are logits in the order of their ids; among equals the smaller index is better.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace split {

struct Candidate {
  float value;
  int32_t index;
};

// Larger values first, smaller ids first among equals: a total order, so that no result depends on
// the sort.
inline constexpr auto kBetter = [](const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.index < b.index;
};

// The `count` best, in no order.
std::vector<Candidate> best_of(std::span<const float> values, size_t count);
// Sorts the best first: by a heap, whose code is a fifth of std::sort's in a tab.
void sort_best(std::span<Candidate> all);

// Weighs each value against the best, e^((value - best) / temperature) to 1e-7 of it (0 below
// e^-87), and sums each kBlockIds of them and all. Gives equal bits on any machine.
struct TokenMasses {
  TokenMasses(std::span<const float> values, float best, double temperature);

  std::vector<float> each;
  std::vector<double> sums;
  double total = 0;
};
inline constexpr size_t kBlockIds = 128;

// Returns the index at `uniform` of all weights, in order.
size_t draw_from_all(const TokenMasses& weights, double uniform);
// Returns the index at `uniform` of the fewest best that weigh top_p of the sum, best first.
size_t draw_from_top(std::span<const float> values, float best, double temperature,
                     const TokenMasses& weights, double top_p, double uniform);

}  // namespace split
