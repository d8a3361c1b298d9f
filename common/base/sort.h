// A sort whose code is small. Of std::sort, the C++ library of a browser's tab makes 3 kB for each
// type and comparison; here one function sorts numbers of elements by calls, and a loop puts the
// elements where the numbers say.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <ranges>
#include <utility>
#include <vector>

namespace split {

// Returns 0 ... count - 1, sorted; equals keep their order.
inline std::vector<uint32_t> sorted_numbers(size_t count,
                                            const std::function<bool(uint32_t, uint32_t)>& less) {
  std::vector<uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return less(a, b); });
  return order;
}

// Sorts as std::ranges::stable_sort does, up to 2^32 elements; half as fast where comparing takes
// little, so not for a hundred thousand.
template <std::ranges::random_access_range Range, typename Less = std::ranges::less,
          typename Key = std::identity>
void sort_stably(Range&& range, Less less = {}, Key key = {}) {
  if (std::ranges::size(range) < 2) return;
  const auto all = std::ranges::begin(range);
  std::vector<uint32_t> order =
      sorted_numbers(std::ranges::size(range), [&](uint32_t a, uint32_t b) {
        return std::invoke(less, std::invoke(key, all[a]), std::invoke(key, all[b]));
      });
  for (uint32_t begin = 0; begin < order.size(); ++begin) {
    uint32_t to = begin;  // along the cycle of places that `begin` is in
    for (uint32_t from = 0; (from = std::exchange(order[to], to)) != begin; to = from) {
      std::swap(all[to], all[from]);
    }
  }
}

}  // namespace split
