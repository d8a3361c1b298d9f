#include "compile/arena.h"

#include <algorithm>
#include <vector>

namespace split {

size_t place(std::span<Life> lives) {
  size_t end = 0;
  std::vector<const Life*> placed;  // in the order of their places
  for (Life& life : lives) {
    life.at = 0;
    for (const Life* other : placed) {
      if (other->at >= life.at + life.size) break;
      const bool together = life.first <= other->last && other->first <= life.last;
      if (together) life.at = std::max(life.at, other->at + other->size);
    }
    placed.insert(std::ranges::upper_bound(placed, life.at, {}, &Life::at), &life);
    end = std::max(end, life.at + life.size);
  }
  return end;
}

}  // namespace split
