// The stages of a model that lead from one point to another. Knows their order and names, not what
// they are.
#pragma once

#include <string>
#include <vector>

#include "step/point.h"

namespace split {

struct StageRange {
  Point from = Point::tokens(), to = Point::head();

  // The blocks from this one on and what is behind them, up to a point: with the embedding, from
  // tokens, where that is the first.
  static StageRange from_block(int block, Point to);

  bool operator==(const StageRange&) const = default;
  bool empty() const { return to <= from; }
  // Places of the first stage and behind the last one in a model of so many blocks.
  size_t begin(int layers) const;
  size_t end(int layers) const;
  // How many of its stages are blocks.
  int blocks(int layers) const;
  // "block.2", "block.3", "norm", "head"
  std::vector<std::string> stage_names(int layers) const;
  // "blocks 2-3, norm, head", or "nothing".
  std::string describe(int layers) const;
};

}  // namespace split
