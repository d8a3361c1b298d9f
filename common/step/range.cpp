#include "step/range.h"

#include <algorithm>

#include "base/error.h"
#include "step/names.h"

namespace split {

StageRange StageRange::from_block(int block, Point to) {
  return {block == 0 ? Point::tokens() : Point(block), to};
}

size_t StageRange::begin(int layers) const {
  const int behind = from.stage(layers) + 1;
  return static_cast<size_t>(behind);
}

size_t StageRange::end(int layers) const {
  return std::max(begin(layers), StageRange{to, to}.begin(layers));
}

int StageRange::blocks(int layers) const {
  return std::max(0, to.blocks_before(layers) - from.blocks_before(layers));
}

std::vector<std::string> StageRange::stage_names(int layers) const {
  std::vector<std::string> all;
  if (from.is_tokens()) all.emplace_back(names::kEmbed);
  for (int i = from.blocks_before(layers); i < to.blocks_before(layers); ++i) {
    all.push_back(cat(names::kBlock, i));
  }
  for (const Point point : {Point::norm(), Point::head()}) {
    if (from < point && point <= to) all.push_back(point.name());
  }
  return all;
}

std::string StageRange::describe(int layers) const {
  std::string text;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  const int first = from.blocks_before(layers), count = blocks(layers);
  for (const std::string& name : stage_names(layers)) {
    if (!name.starts_with(names::kBlock)) {
      add(name);
    } else if (name == cat(names::kBlock, first)) {
      add(count == 1 ? cat("block ", first) : cat("blocks ", first, "-", first + count - 1));
    }
  }
  return text.empty() ? "nothing" : text;
}

}  // namespace split
