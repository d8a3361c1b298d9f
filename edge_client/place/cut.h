// Where a text runs: how many of a model's first blocks the cloud computes, or all of it with the
// head and the choice of tokens.
#pragma once

#include <algorithm>
#include <climits>
#include <compare>
#include <ostream>
#include <string>

namespace split::edge {

class Cut {
 public:
  constexpr Cut(int blocks = 0) : blocks_(blocks) {}  // NOLINT(google-explicit-constructor)
  static constexpr Cut cloud() { return {INT_MAX}; }

  constexpr bool is_cloud() const { return blocks_ == INT_MAX; }
  // The cloud's blocks, of a model with so many.
  constexpr int blocks(int layers) const { return std::min(blocks_, layers); }
  // The cloud's blocks; only for a cut that is not the cloud.
  constexpr int blocks() const { return blocks_; }
  // More on the cloud is more.
  constexpr auto operator<=>(const Cut&) const = default;

  // "6" or "cloud"
  std::string name() const { return is_cloud() ? "cloud" : std::to_string(blocks_); }
  // 6 or "cloud", with quotes.
  std::string json() const { return is_cloud() ? "\"cloud\"" : name(); }
  // "cut 6", "all here" or "all on the cloud"
  std::string words() const {
    return is_cloud() ? "all on the cloud" : blocks_ == 0 ? "all here" : "cut " + name();
  }

 private:
  int blocks_;
};

inline std::ostream& operator<<(std::ostream& out, Cut cut) { return out << cut.name(); }

}  // namespace split::edge
