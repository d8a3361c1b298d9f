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
  Task<void> take(SequenceRows rows, std::optional<PrefixCache::Taken>& taken);
  // The row where a step of the prompt from `row` on is to end at the latest.
  uint32_t step_end(uint32_t row) const;
  // Caches the tail's whole pages. None of its jobs may run. `snapshot`: as PrefixCache::put; by
  // default where a prompt or an answer ends.
  void put(std::optional<uint32_t> snapshot = {});
  // Does so for a long answer that has come far since, where blocks keep a state.
  void put_far();
  // Drops this root from the cache, and stops using it.
  void forget();

 private:
  PrefixCache* prefixes() const;
  PrefixRoot root_here() const;
  StageRange blocks() const { return {sides_.blocks(), Point(sides_.layers())}; }

  SplitState& sides_;
  uint32_t parts_at_ = 0;  // where the prompt parts from another text
  uint32_t put_ = 0;       // rows at the last put()
};

}  // namespace split::edge
