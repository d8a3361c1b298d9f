#include "edge_client/place/begin.h"

#include <algorithm>
#include <numeric>

namespace split::edge {
namespace {

size_t count_within(const std::vector<uint64_t>& steps, uint64_t most) {
  uint64_t bytes = 0;
  const auto over = std::ranges::find_if(steps, [&](uint64_t step) {
    bytes += step;
    return bytes > most;
  });
  return static_cast<size_t>(over - steps.begin());
}

uint64_t bytes_of(const std::vector<uint64_t>& steps, size_t count) {
  const auto end = steps.begin() + static_cast<std::ptrdiff_t>(count);
  return std::accumulate(steps.begin(), end, uint64_t{0});
}

}  // namespace

Coming what_comes(const ComingInput& in) {
  Coming coming;
  coming.limit = in.granted < in.max_weights ? Limit::kMemory : Limit::kMaxWeights;
  coming.most = std::min(in.granted, in.max_weights);
  coming.steps = count_within(in.steps, coming.most);
  coming.whole = coming.steps == in.steps.size();
  if (!coming.whole && in.head_blocks > kLargeHead) {
    coming.head = false;
    coming.steps = count_within(in.headless, coming.most);
    if (coming.steps == 1) coming.steps = 0;  // the norm alone
  }
  coming.bytes = bytes_of(coming.head ? in.steps : in.headless, coming.steps);
  coming.all = bytes_of(in.steps, in.steps.size());
  return coming;
}

}  // namespace split::edge
