// The prompt cache of this machine (run/prefix_cache.h), as one text uses it: rows of its tail's
// blocks, shared among texts with the same cut. A row has the bits that its cut gives it, so that a
// text is the same with and without the cache.
#pragma once

#include <optional>
#include <span>

#include "edge_client/split/sides.h"

namespace split::edge {

// One thread at a time.
class SharedRows {
 public:
  explicit SharedRows(SplitState& sides) : sides_(sides) {}

  std::optional<PrefixRoot> root;  // scope of sharing, whatever the cut; none: nothing is shared

  // Leading rows of a prompt that are cached; the last one is always computed.
  uint32_t known(std::span<const int32_t> prompt) const;
  // Copies cached rows into the tail. While `taken` lives, other texts wait for the rest of the
  // rows.
  Task<void> take(SequenceRows rows, std::optional<PrefixCache::Taken>& taken) const;
  // Caches the tail's whole pages. None of its jobs may run.
  void put() const;
  // Drops this root from the cache, and stops using it.
  void forget();

 private:
  PrefixCache* prefixes() const;
  PrefixRoot root_here() const;
  StageRange blocks() const { return {sides_.blocks(), Point(sides_.layers())}; }

  SplitState& sides_;
};

}  // namespace split::edge
