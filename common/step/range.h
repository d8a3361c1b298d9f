// The stages of a model that lead from one point to another. Knows their order and names, not their
// work.
#pragma once

#include <string>
#include <vector>

#include "step/point.h"

namespace split {

struct StageRange {
  Point from = Point::tokens(), to = Point::head();

  // The blocks from this one on and the stages behind them, up to a point: from tokens, with the
  // embedding, if that is the first block.
  static StageRange from_block(int block, Point to);

  bool operator==(const StageRange&) const = default;
  bool empty() const { return to <= from; }
  // Indices of the first stage and behind the last one in a model of so many blocks.
  size_t begin(int layers) const;
  size_t end(int layers) const;
  // Number of its stages that are blocks.
  int blocks(int layers) const;
  // "block.2", "block.3", "norm", "head"
  std::vector<std::string> stage_names(int layers) const;
  // "blocks 2-3, norm, head", or "nothing".
  std::string describe(int layers) const;
};

}  // namespace split
