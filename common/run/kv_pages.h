// The holders of each KV page, and the rows of a sequence that each block has. A page holds
// kPageTokens positions of every layer of a shard. Its holders are sequences and at most one cache
// of prefixes (run/prefix_cache.h); a page without any is free. Only whole pages are shared, and
// are not written: a sequence that must write lets go of the page first. Knows no device: a page is
// a number.
//
// A sequence has `length` rows, and of these every block has the leading `filled`: a step runs its
// rows through some of the blocks, and the others may get theirs later, by a fill (run/batcher.h).
// Pages are there for all `length` rows.
//
// A block may keep a state in place of keys and values (tensor/state_shape.h), which has no rows:
// it goes back to the last kPageTokens rows before the furthest one that a step began to write;
// else to the latest snapshot, or to row 0. A sequence has a state of each such block, all of one
// number; and while a fill computes rows again that they are past, a second one, apart.
//
// A snapshot is a copy of states where a page ends, in half the room of a state. Sequences name it,
// and so may the cache; it goes with the last of them, or earlier, the oldest first, once a
// sequence needs its room. Whoever names it looks whether it is there still.
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

struct StateSnapshot {
  uint32_t number = 0;
  uint64_t made = 0;  // tells it from others of its number; 0: none
  bool operator==(const StateSnapshot&) const = default;
};

namespace test {
class LiveStates;  // reads what a text left
}

// Any number of threads, but one at a time for each sequence.
class KvPages {
 public:
  // Blocks that keep a state, of all `layers`, and the number of states in each of them.
  struct States {
    std::vector<bool> blocks = {};
    uint32_t total = 0;
  };
  using Snapshot = StateSnapshot;
  // Numbers of a block's states that are copied before the next step: all of a state to another, or
  // what a snapshot of `row` has. `from`, `to`: numbers of states, or the snapshot's.
  struct StateCopy {
    enum class Kind { kWhole, kLeave, kTakeUp } kind;
    size_t block;
    uint32_t from, to, row;
  };
  using Copies = std::vector<StateCopy>;
  // `layers`: blocks of the whole model, whichever of them are here.
  KvPages(uint32_t pages, uint32_t pages_per_sequence, int layers)
      : KvPages(pages, pages_per_sequence, layers, {}) {}
  KvPages(uint32_t pages, uint32_t pages_per_sequence, int layers, States states);

  // `counts`: in_use() counts its pages. The program's own sequences do not count.
  SequenceId open(bool counts = true);
  void close(SequenceId id);
  uint32_t length(SequenceId id) const;
  // Leading rows that a block has.
  uint32_t filled(SequenceId id, int block) const;
  // Leading rows that all blocks of a range have; the sequence's length for a range without blocks.
  uint32_t filled(SequenceId id, const StageRange& range) const;
  // Cuts a sequence back to `length` positions, no more than it has, or to fewer, a snapshot's or
  // none, where a state does not go back that far; frees the pages behind them. A block that lags
  // behind the sequence then loses its own rows alone.
  void truncate(SequenceId id, uint32_t length);
  // Cuts it back; returns false if it has fewer rows: a device was lost meanwhile.
  bool cut_back(SequenceId id, uint32_t length);
  // Gives a sequence pages for `length` positions, and the states that a step of the range's blocks
  // from row `from` on writes, in place of snapshots if need be. Returns false, with no page or
  // state taken, when too few are free.
  bool reserve(SequenceId id, uint32_t length, const StageRange& range = {},
               std::optional<uint32_t> from = {});
  // Whether reserve() fails for want of pages.
  bool lacks_pages(SequenceId id, uint32_t length) const;
  // Drops a sequence's rows if these wait for a snapshot, which then gives its room; else false.
  bool drop_waiting(SequenceId id);
  // How the range's blocks come to compute rows from `row` on, which all of them have before it: a
  // step from row `from` on, of the blocks before `to`, up to row `end` at most.
  struct Again {
    uint32_t from = 0, end = UINT32_MAX;
    Point to = 0;
  };
  Again again(SequenceId id, const StageRange& range, uint32_t row) const;
  // Notes that a step begins to write the rows [from, end) of the range's blocks, as again() and
  // reserve() allowed; writes the number of each block's state to `states`, by block of the model.
  // Returns what the step's states are to be made of.
  [[nodiscard]] Copies begin(SequenceId id, const StageRange& range, uint32_t from, uint32_t end,
                             std::span<uint32_t> states);
  // Notes that the range's blocks have `length` rows, and the sequence at least as many, for which
  // it has pages: the step that began has ended.
  void advance(SequenceId id, const StageRange& range, uint32_t length);
  // Empties every sequence and the cache: a later generation() begins.
  void forget();

  // Gives a sequence of whole pages these cached pages behind its own; the range's blocks have
  // their rows, and their states are those of the snapshot behind them. Returns false, with nothing
  // changed, if they are of an earlier generation or the snapshot is not there.
  bool adopt(SequenceId id, std::span<const uint32_t> pages, const StageRange& range,
             uint64_t generation, const Snapshot& snapshot = {});
  // Shares the leading pages of `from`, at most `length` rows that the range's blocks have, with an
  // empty sequence: where they keep states, as far as the latest snapshot. Returns false if `from`
  // lacks the rows: a device was lost meanwhile, as below.
  bool fork(SequenceId id, SequenceId from, const StageRange& range, uint32_t length);
  // Gives a sequence the fork's pages from row `from` on, a page's first, in place of its own: the
  // range's blocks then have as many rows as the fork's, deeper ones none of these. Adds what is to
  // be copied before any step runs. Empties the fork.
  bool join(SequenceId id, SequenceId fork, const StageRange& range, uint32_t from, Copies& copies);

  // Whether blocks of the range keep states.
  bool keeps_states(const StageRange& range) const;
  // Makes a snapshot of the range's states at a page's first row, which the sequence names, if they
  // go back there still; adds what is to be copied before any step runs. At the cost of the oldest
  // snapshot where no room is left. Returns none of no number.
  Snapshot leave(SequenceId id, const StageRange& range, uint32_t row, Copies& copies);
  // Frees one that could not be copied, before anybody else knows of it.
  void drop_snapshot(const Snapshot& snapshot);
  // Lets a sequence name the latest snapshot of another one that has its leading rows, in place of
  // others that no cache holds.
  void name_latest(SequenceId id, SequenceId other);
  // Whether a snapshot is there still, for all of the range's states.
  bool has(const Snapshot& snapshot, const StageRange& range) const;
  // The cache's hold on a snapshot; false if it is not there.
  bool hold_snapshot(const Snapshot& snapshot);
  void let_go_of_snapshot(const Snapshot& snapshot);
  // Prepares writing rows from `length` on: cuts the sequence back to a page's start if that page
  // has other holders. Returns its new length, at most `length`; less too if it had fewer rows.
  uint32_t own(SequenceId id, uint32_t length);
  // Whether no other holder has the pages of the sequence's rows in [first, end).
  bool owns(SequenceId id, uint32_t first, uint32_t end) const;
  // Lets the cache hold this whole page of a sequence too. Returns nothing if it does already, or
  // if the sequence has no such page any more.
  std::optional<uint32_t> share(SequenceId id, size_t index, uint64_t generation);
  // Ends the cache's hold on a page, taken in this generation.
  void let_go(uint32_t page, uint64_t generation);
  bool held_by_cache_alone(uint32_t page) const;
  uint64_t generation() const;

  // Writes the sequence's pages to `out`, which has room for a whole context; returns their number.
  size_t copy_table(SequenceId id, uint32_t* out) const;

  uint32_t total() const { return total_; }
  uint32_t per_sequence() const { return pages_per_sequence_; }
  uint32_t states() const { return states_.total; }
  // States of sequences.
  uint32_t states_in_use() const;
  uint32_t snapshots() const;
  // Pages of the sequences that count.
  uint32_t in_use() const;
  // Pages that only the cache holds.
  uint32_t spare() const;

 private:
  friend class test::LiveStates;
  // The rows that a block's state of a sequence has been through.
  struct Passed {
    uint32_t reach = 0;   // the furthest row that a step began to write
    uint32_t base = 0;    // where it was taken up
    Snapshot waits = {};  // what it is to be taken up from, which is held until then

    bool goes_back_to(uint32_t row, uint32_t rows = kPageTokens) const {
      return row >= base && row + rows >= reach;
    }
  };
  struct BlockState {
    Passed text, apart;
    uint32_t again = 0;     // rows of the one apart
    bool is_apart = false;  // the present step runs there
  };
  struct Sequence {
    uint32_t length = 0;
    std::vector<uint32_t> filled;  // leading rows by block
    std::vector<uint32_t> pages;
    bool counts = true;
    std::vector<BlockState> blocks;        // by block
    std::optional<uint32_t> state, apart;  // numbers of its states
    Point to = 0;                          // where its last rows left the blocks
    uint32_t unused = 0;                   // steps since the one apart was used
    std::vector<Snapshot> named;           // snapshots of its leading rows
  };
  // A snapshot's room.
  struct Kept {
    uint64_t made = 0, used = 0;  // in order of time; 0: free
    uint32_t row = 0;
    size_t first = 0, end = 0;  // blocks
    uint32_t names = 0;         // sequences that name it
    uint32_t waiting = 0;       // states that wait to be taken up from it
    bool cached = false;
  };
  // A second state that no fill used for so many steps is free again.
  static constexpr uint32_t kUnusedSteps = 64;
  // Called with the lock held:
  Sequence& find(SequenceId id);
  const Sequence& find(SequenceId id) const;
  // Place of the range's first block, and the number of blocks.
  std::pair<size_t, size_t> blocks_of(const StageRange& range) const;
  void cut(Sequence& sequence, uint32_t length);
  bool goes_on(const Sequence& sequence, size_t block, uint32_t row) const;
  bool is_apart_at(const Sequence& sequence, size_t block, uint32_t row) const;
  bool goes_on_apart(const Sequence& sequence, size_t block, uint32_t row) const;
  size_t lacking(const Sequence& sequence, const StageRange& range, std::optional<uint32_t> from,
                 bool& state, bool& apart) const;
  // Where a block's state goes back to, from `row` at most.
  uint32_t goes_back(const Sequence& sequence, size_t block, uint32_t row) const;
  void lower(Sequence& sequence, size_t block, uint32_t row);
  // Calls `see` with each of the range's blocks that keep a state.
  template <typename See>
  void for_states(const StageRange& range, const See& see) const {
    if (states_.total == 0) return;
    const auto [first, count] = blocks_of(range);
    for (size_t block = first; block < first + count; ++block) {
      if (states_.blocks[block]) see(block);
    }
  }
  void drop_state(std::optional<uint32_t>& state);
  void drop_apart(Sequence& sequence);
  bool is_there(const Snapshot& snapshot) const;
  // The latest of the snapshots that a sequence names, up to a row of a block; none of no number.
  Snapshot latest(const Sequence& sequence, size_t block, uint32_t row) const;
  void take_up(Passed& passed, const Snapshot& snapshot);
  void drop_wait(Passed& passed);
  void name(Sequence& sequence, const Snapshot& snapshot);
  void unname(const Snapshot& snapshot);
  void free_if_unheld(uint32_t number);
  void free_snapshot(uint32_t number);
  bool evict_snapshot();
  void fill(Sequence& sequence, const StageRange& range, uint32_t from, uint32_t end) const;
  void release(Sequence& sequence, size_t keep);
  void hold(uint32_t page);
  void drop(uint32_t page);

  struct Page {
    uint32_t holders = 0;
    bool cached = false;  // the cache is a holder
    bool spare() const { return cached && holders == 1; }
  };
  mutable std::mutex mutex_;
  uint32_t total_ = 0;
  uint32_t pages_per_sequence_ = 0;
  int layers_ = 0;
  const States states_;
  SequenceId next_ = 1;
  uint64_t generation_ = 0;
  uint32_t spare_ = 0, uncounted_ = 0;
  std::vector<Page> pages_;
  std::vector<uint32_t> free_, free_states_;
  std::vector<Kept> kept_;             // two in a state's room
  std::vector<uint32_t> free_halves_;  // numbers whose neighbour is taken
  uint64_t clock_ = 0;                 // the last time of made and used
  uint32_t halved_ = 0;                // states' rooms that hold snapshots
  std::map<SequenceId, Sequence> sequences_;
};

// A sequence, closed by the destructor.
struct OneSequence {
  explicit OneSequence(KvPages& pages, bool counts = true) : pages(pages), id(pages.open(counts)) {}
  ~OneSequence() { pages.close(id); }
  OneSequence(const OneSequence&) = delete;
  OneSequence& operator=(const OneSequence&) = delete;
  KvPages& pages;
  const SequenceId id;
};

}  // namespace split
