// The holders of each KV page, and the rows of a sequence that each block has. A page holds
// kPageTokens positions of every layer of a shard. Its holders are sequences and, once, a cache of
// prefixes (run/prefix_cache.h); a page without any is free. Only whole pages have two, and nobody
// writes into these: a sequence that has to lets go of the page first. Knows no device: a page is a
// number.
//
// A sequence has `length` rows, and of these every block has the leading `filled`: a step runs its
// rows through some of the blocks, and the others may get theirs later, by a fill (run/batcher.h).
// Pages are for the longest.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "device/device.h"
#include "step/range.h"

namespace split {

using SequenceId = uint64_t;

// Any number of threads, but one at a time for each sequence.
class KvPages {
 public:
  // `layers`: blocks of the whole model, whichever of them are here.
  KvPages(uint32_t pages, uint32_t pages_per_sequence, int layers);

  // `counts`: its pages are in use. Those of a sequence that does not are the program's own.
  SequenceId open(bool counts = true);
  void close(SequenceId id);
  uint32_t length(SequenceId id) const;
  // Leading rows that a block has.
  uint32_t filled(SequenceId id, int block) const;
  // Leading rows that all blocks of a range have; the sequence's length where it has no block.
  uint32_t filled(SequenceId id, const StageRange& range) const;
  // Cuts a sequence back to `length` positions, no more than it has; pages behind it are free
  // again.
  void truncate(SequenceId id, uint32_t length);
  // Cuts it back, or says false when it has fewer: a device was lost meanwhile.
  bool cut_back(SequenceId id, uint32_t length);
  // Gives a sequence pages for `length` positions. False, with nothing changed, when too few are
  // free.
  bool reserve(SequenceId id, uint32_t length);
  // The blocks of the range now have `length` rows, and the sequence as many or more; it has pages
  // for them.
  void advance(SequenceId id, const StageRange& range, uint32_t length);
  // Every sequence is empty, and no cache holds a page: a later generation() begins.
  void forget();

  // A sequence of whole pages holds these behind its own, which the blocks of the range have as
  // well; the cache holds each of them. False, with nothing changed, where they are of an earlier
  // generation.
  bool adopt(SequenceId id, std::span<const uint32_t> pages, const StageRange& range,
             uint64_t generation);
  // An empty sequence holds the leading pages of another one too: so many rows, which all blocks of
  // the range have. False where it lacks them: a device was lost meanwhile, as below.
  bool fork(SequenceId id, SequenceId from, const StageRange& range, uint32_t length);
  // A sequence takes the pages of a fork from this row on, a page's first, in place of its own: its
  // blocks of the range have as many rows as the fork's, the deeper ones none of them. The fork is
  // empty then.
  bool join(SequenceId id, SequenceId fork, const StageRange& range, uint32_t from);
  // Before rows are written from `length` on: where that is inside of a page with other holders,
  // the sequence is cut to the page's start. Returns the length that it has then, no more than
  // `length`; less also where it had fewer rows.
  uint32_t own(SequenceId id, uint32_t length);
  // Whether the pages of the rows [first, end), those that the sequence has, are its alone.
  bool owns(SequenceId id, uint32_t first, uint32_t end) const;
  // The cache holds this page of a sequence too, which is whole. Nothing where it does already, or
  // the sequence has no such page any more.
  std::optional<uint32_t> share(SequenceId id, size_t index, uint64_t generation);
  // The cache, which holds the page since this generation, does so no longer.
  void let_go(uint32_t page, uint64_t generation);
  bool held_by_cache_alone(uint32_t page) const;
  uint64_t generation() const;

  // Writes the sequence's pages to `out`, which has room for a whole context; returns how many
  // there are.
  size_t copy_table(SequenceId id, uint32_t* out) const;

  uint32_t total() const { return total_; }
  uint32_t per_sequence() const { return pages_per_sequence_; }
  // Pages that sequences hold which count.
  uint32_t in_use() const;
  // Pages that only the cache holds.
  uint32_t spare() const;

 private:
  struct Sequence {
    uint32_t length = 0;
    std::vector<uint32_t> filled;  // by block
    std::vector<uint32_t> pages;
    bool counts = true;
  };
  // With the lock held:
  Sequence& find(SequenceId id);
  const Sequence& find(SequenceId id) const;
  // Place of the range's first block, and how many there are.
  std::pair<size_t, size_t> blocks_of(const StageRange& range) const;
  void cut(Sequence& sequence, uint32_t length);
  void fill(Sequence& sequence, const StageRange& range, uint32_t from, uint32_t end) const;
  void release(Sequence& sequence, size_t keep);
  void hold(uint32_t page);
  void drop(uint32_t page);

  struct Page {
    uint32_t holders = 0;
    bool cached = false;  // one of them is the cache
    bool spare() const { return cached && holders == 1; }
  };
  mutable std::mutex mutex_;
  uint32_t total_ = 0;
  uint32_t pages_per_sequence_ = 0;
  int layers_ = 0;
  SequenceId next_ = 1;
  uint64_t generation_ = 0;
  uint32_t spare_ = 0, uncounted_ = 0;
  std::vector<Page> pages_;
  std::vector<uint32_t> free_;
  std::map<SequenceId, Sequence> sequences_;
};

// A sequence that ends with this.
struct OneSequence {
  explicit OneSequence(KvPages& pages, bool counts = true) : pages(pages), id(pages.open(counts)) {}
  ~OneSequence() { pages.close(id); }
  OneSequence(const OneSequence&) = delete;
  OneSequence& operator=(const OneSequence&) = delete;
  KvPages& pages;
  const SequenceId id;
};

}  // namespace split
