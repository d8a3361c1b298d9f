// The rows of prompts that texts leave on this machine (run/prefix_cache.h), as one text takes them
// and leaves its own: those of its tail's blocks, among texts that were cut where it is. A row has
// the bits that its cut gives it, so that a text is the same with them and without.
#pragma once

#include <optional>
#include <span>

#include "edge_client/split/sides.h"

namespace split::edge {

// One thread at a time.
class SharedRows {
 public:
  explicit SharedRows(SplitState& sides) : sides_(sides) {}

  std::optional<PrefixRoot> root;  // whose they are, wherever the cut is; none: it shares none

  // Leading rows of a prompt that are here; its last one is always computed.
  uint32_t known(std::span<const int32_t> prompt) const;
  // The tail gets those of a text's first rows; others wait for the rest of them while `taken`
  // lives.
  Task<void> take(SequenceRows rows, std::optional<PrefixCache::Taken>& taken) const;
  // Keeps the whole pages that the tail has; none of its jobs runs.
  void put() const;
  // Takes none any more, and nobody else does what it took.
  void forget();

 private:
  PrefixCache* prefixes() const;
  PrefixRoot root_here() const;
  StageRange blocks() const { return {sides_.cut, Point(sides_.layers())}; }

  SplitState& sides_;
};

}  // namespace split::edge
