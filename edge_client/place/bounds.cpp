#include "edge_client/place/bounds.h"

#include <array>

#include "base/error.h"

namespace split::edge {
namespace {

CutBounds below_the_tail(const BoundFacts& facts) {
  if (!facts.tail) return {};
  return {*facts.tail, "where the tail begins", true};
}

// The lowest bound counts.
constexpr std::array kBounds = {below_the_tail};

}  // namespace

void CutBounds::expect(std::string_view flag, Cut cut) const {
  if (cut <= highest) return;
  throw Error(ErrorKind::kInput,
              cat(flag, ": expected at most ", highest.name(), ", ", why, ", got ", cut.name()));
}

CutBounds bounds_of(const BoundFacts& facts) {
  CutBounds all;
  for (const auto& rule : kBounds) {
    const CutBounds one = rule(facts);
    const bool head_here = all.head_here || one.head_here;
    if (one.highest < all.highest) all = one;
    all.head_here = head_here;
  }
  return all;
}

}  // namespace split::edge
