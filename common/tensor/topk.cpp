#include "tensor/topk.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace split {

void topk_row(std::span<const float> row, std::span<float> out) {
  const size_t count = out.size() / 2;
  std::vector<std::pair<float, uint32_t>> all(row.size());  // what it is ordered by, column
  for (size_t c = 0; c < row.size(); ++c) {
    const bool finite = std::isfinite(row[c]);
    all[c] = {finite ? row[c] : std::numeric_limits<float>::infinity(), static_cast<uint32_t>(c)};
  }
  const auto better = [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second < b.second;
  };
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count), all.end(),
                    better);
  for (size_t i = 0; i < count; ++i) {
    out[i] = row[all[i].second];
    out[count + i] = static_cast<float>(all[i].second);
  }
}

}  // namespace split
