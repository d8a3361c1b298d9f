// A point of a model: the output of one of its stages, or the tokens that enter the first. Block k
// turns point k into point k + 1; point 0 leaves the embedding, and behind the last block stand the
// final norm, the head, and the largest of its logits. Points are in the order in which a row meets
// them, whatever the number L of blocks:
//   tokens < 0 < 1 < ... < L < norm < head < top
// Only a point's place among the stages of a model depends on L.
#pragma once

#include <compare>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace split {

class Point {
 public:
  // The hidden state that enters a block; L: the one that left the last block.
  constexpr Point(int block = 0) : order_(block) {}
  static constexpr Point tokens() { return {-1}; }
  static constexpr Point norm() { return {kBehind + 1}; }
  static constexpr Point head() { return {kBehind + 2}; }
  static constexpr Point top() { return {kBehind + 3}; }  // the largest logits and their ids
  // The last point of a model of so many blocks, without the top; its rows are pooled: behind the
  // blocks without a head and a final norm.
  static constexpr Point last(int layers, bool has_norm, bool has_head) {
    return has_head ? head() : pooled(layers, has_norm);
  }
  static constexpr Point pooled(int layers, bool has_norm) { return has_norm ? norm() : layers; }
  // Parses "3", "norm" or "head". Nothing for another text, or a number above `layers`.
  static std::optional<Point> parse(std::string_view text, int layers);

  constexpr auto operator<=>(const Point&) const = default;
  constexpr bool is_tokens() const { return order_ < 0; }
  // The block that it enters: 0 for tokens. Not for points behind the norm.
  int block() const;
  // Number of a model's blocks that lead to it.
  int blocks_before(int layers) const;
  // Index of the stage that leads to it in a model of so many blocks: -1 for tokens; the top's is
  // behind them all. Throws unless there is such a point.
  int stage(int layers) const;
  // "tokens", "3", "norm", "head" or "top".
  std::string name() const;

 private:
  static constexpr int kBehind = 1 << 30;  // above any number of blocks
  int order_;
};

// Number of blocks on the cloud by default: all but the last two.
int default_cut(int layers);

}  // namespace split
