// The states of sequences beside their pages: where they go back to, and their snapshots.
#include <algorithm>
#include <utility>

#include "run/kv_pages.h"

namespace split {

// The number of states that a step lacks: the sequence's, and the one apart.
size_t KvPages::lacking(const Sequence& sequence, const StageRange& range,
                        std::optional<uint32_t> from, bool& state, bool& apart) const {
  state = apart = false;
  for_states(range, [&](size_t block) {
    state = true;
    apart = apart || !goes_on(sequence, block, from.value_or(sequence.filled[block]));
  });
  state = state && !sequence.state;
  apart = apart && !sequence.apart;
  return size_t{state} + size_t{apart};
}

bool KvPages::drop_waiting(SequenceId id) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  const bool waits = std::ranges::any_of(
      sequence.blocks, [](const BlockState& block) { return block.text.waits.made != 0; });
  if (waits) cut(sequence, 0);
  return waits;
}

bool KvPages::goes_on(const Sequence& sequence, size_t block, uint32_t row) const {
  const uint32_t filled = sequence.filled[block];
  return row <= filled && (filled == 0 || sequence.blocks[block].text.goes_back_to(row));
}

// Whether the state apart is at a row, or goes back to it.
bool KvPages::is_apart_at(const Sequence& sequence, size_t block, uint32_t row) const {
  const BlockState& state = sequence.blocks[block];
  return row == 0 || (sequence.apart && row <= state.again && state.apart.goes_back_to(row));
}

bool KvPages::goes_on_apart(const Sequence& sequence, size_t block, uint32_t row) const {
  if (is_apart_at(sequence, block, row)) return true;
  const Snapshot there = latest(sequence, block, row);
  return there.made != 0 && kept_[there.number].row == row;
}

KvPages::Again KvPages::again(SequenceId id, const StageRange& range, uint32_t row) const {
  const std::lock_guard lock(mutex_);
  const Sequence& sequence = find(id);
  Again again{.from = row, .to = range.to};
  std::vector<size_t> apart;  // blocks that are past these rows
  bool lacks = false;
  for_states(range, [&](size_t block) {
    if (goes_on(sequence, block, row)) return;
    apart.push_back(block);
    again.end = std::min(again.end, std::max(sequence.filled[block], row));
    lacks = lacks || !goes_on_apart(sequence, block, row);
  });
  if (!lacks) return again;
  again.end = row;
  again.to = Point(static_cast<int>(apart.back()) + 1);
  for (bool changed = true; changed;) {
    changed = false;
    for_states({range.from, again.to}, [&](size_t block) {
      if (goes_on(sequence, block, again.from) || goes_on_apart(sequence, block, again.from)) {
        return;
      }
      const uint32_t there = sequence.blocks[block].again;
      const Snapshot snapshot = latest(sequence, block, again.from);
      const bool is_there = there < again.from && is_apart_at(sequence, block, there);
      again.from =
          std::max(is_there ? there : 0, snapshot.made != 0 ? kept_[snapshot.number].row : 0);
      changed = true;
    });
  }
  return again;
}

KvPages::Copies KvPages::begin(SequenceId id, const StageRange& range, uint32_t from, uint32_t end,
                               std::span<uint32_t> states) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  if (from < sequence.length) {
    sequence.unused = 0;
  } else if (std::exchange(sequence.to, range.to) != range.to || ++sequence.unused > kUnusedSteps) {
    drop_apart(sequence);  // the text moved, or nobody goes on with the fill
  }
  Copies copies;
  for_states(range, [&](size_t block) {
    BlockState& state = sequence.blocks[block];
    state.is_apart = !goes_on(sequence, block, from);
    CHECK(!state.is_apart || is_apart_at(sequence, block, from));
    Passed& passed = state.is_apart ? state.apart : state.text;
    if (state.is_apart ? from == 0 : sequence.filled[block] == 0) {
      drop_wait(passed);
      passed = {};
      if (state.is_apart) state.again = 0;
    }
    passed.reach = std::max(passed.reach, end);
    CHECK(state.is_apart ? sequence.apart && end <= sequence.filled[block]
                         : sequence.state.has_value());
    states[block] = state.is_apart ? *sequence.apart : *sequence.state;
    if (passed.waits.made == 0) return;
    copies.push_back({StateCopy::Kind::kTakeUp, block, passed.waits.number, states[block],
                      kept_[passed.waits.number].row});
    drop_wait(passed);
  });
  return copies;
}

uint32_t KvPages::states_in_use() const {
  const std::lock_guard lock(mutex_);
  return states_.total - halved_ - static_cast<uint32_t>(free_states_.size());
}

uint32_t KvPages::snapshots() const {
  const std::lock_guard lock(mutex_);
  return 2 * halved_ - static_cast<uint32_t>(free_halves_.size());
}

uint32_t KvPages::goes_back(const Sequence& sequence, size_t block, uint32_t row) const {
  row = std::min(row, sequence.filled[block]);
  if (goes_on(sequence, block, row)) return row;
  const Snapshot there = latest(sequence, block, row);
  return there.made == 0 ? 0 : kept_[there.number].row;
}

// Takes a block's state back to a row, or as near as it goes.
void KvPages::lower(Sequence& sequence, size_t block, uint32_t row) {
  uint32_t& filled = sequence.filled[block];
  row = std::min(row, filled);
  if (!goes_on(sequence, block, row)) {
    const Snapshot there = latest(sequence, block, row);
    row = there.made == 0 ? 0 : kept_[there.number].row;
    take_up(sequence.blocks[block].text, there);
  }
  filled = row;
}

void KvPages::drop_state(std::optional<uint32_t>& state) {
  if (state) free_states_.push_back(*state);
  state.reset();
}

void KvPages::drop_apart(Sequence& sequence) {
  for (BlockState& state : sequence.blocks) drop_wait(state.apart);
  drop_state(sequence.apart);
}

bool KvPages::keeps_states(const StageRange& range) const {
  bool keeps = false;
  for_states(range, [&](size_t) { keeps = true; });
  return keeps;
}

KvPages::Snapshot KvPages::leave(SequenceId id, const StageRange& range, uint32_t row,
                                 Copies& copies) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  CHECK(row % kPageTokens == 0);
  bool there = row > 0 && sequence.state && keeps_states(range);
  for_states(range, [&](size_t block) {
    const Passed& passed = sequence.blocks[block].text;
    there = there && sequence.filled[block] >= row && passed.waits.made == 0 &&
            passed.goes_back_to(row, kSnapshotRows);
  });
  if (!there) return {};
  while (free_halves_.empty()) {
    if (free_states_.empty() && !evict_snapshot()) return {};
    if (free_states_.empty()) continue;
    free_halves_.push_back(2 * free_states_.back());
    free_halves_.push_back(2 * free_states_.back() + 1);
    free_states_.pop_back();
    ++halved_;
  }
  const Snapshot made{free_halves_.back(), ++clock_};
  free_halves_.pop_back();
  const auto [first, count] = blocks_of(range);
  kept_[made.number] = {
      .made = made.made, .used = made.made, .row = row, .first = first, .end = first + count};
  for_states(range, [&](size_t block) {
    copies.push_back({StateCopy::Kind::kLeave, block, *sequence.state, made.number, row});
  });
  name(sequence, made);
  return made;
}

void KvPages::drop_snapshot(const Snapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  if (is_there(snapshot)) free_snapshot(snapshot.number);
}

void KvPages::name_latest(SequenceId id, SequenceId other) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  Snapshot last;
  for (const Snapshot& snapshot : find(other).named) {
    if (!is_there(snapshot) || kept_[snapshot.number].row > sequence.length) continue;
    if (last.made == 0 || kept_[snapshot.number].row > kept_[last.number].row) last = snapshot;
  }
  if (last.made == 0) return;
  name(sequence, last);
  std::erase_if(sequence.named, [&](const Snapshot& snapshot) {
    if (snapshot == last || (is_there(snapshot) && kept_[snapshot.number].cached)) return false;
    unname(snapshot);
    return true;
  });
}

bool KvPages::has(const Snapshot& snapshot, const StageRange& range) const {
  const std::lock_guard lock(mutex_);
  if (!is_there(snapshot)) return false;
  const Kept& kept = kept_[snapshot.number];
  bool all = true;
  for_states(range, [&](size_t block) { all = all && kept.first <= block && block < kept.end; });
  return all;
}

bool KvPages::hold_snapshot(const Snapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  if (!is_there(snapshot)) return false;
  kept_[snapshot.number].cached = true;
  return true;
}

void KvPages::let_go_of_snapshot(const Snapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  if (!is_there(snapshot)) return;
  kept_[snapshot.number].cached = false;
  free_if_unheld(snapshot.number);
}

bool KvPages::is_there(const Snapshot& snapshot) const {
  return snapshot.made != 0 && kept_[snapshot.number].made == snapshot.made;
}

KvPages::Snapshot KvPages::latest(const Sequence& sequence, size_t block, uint32_t row) const {
  Snapshot last;
  for (const Snapshot& snapshot : sequence.named) {
    const Kept& kept = kept_[snapshot.number];
    if (!is_there(snapshot) || kept.row > row || block < kept.first || block >= kept.end) continue;
    if (last.made == 0 || kept.row > kept_[last.number].row) last = snapshot;
  }
  return last;
}

// Begins a state anew: at a snapshot's row, or at none.
void KvPages::take_up(Passed& passed, const Snapshot& snapshot) {
  if (snapshot.made != 0) ++kept_[snapshot.number].waiting;
  drop_wait(passed);
  passed = {};
  if (snapshot.made == 0) return;
  Kept& kept = kept_[snapshot.number];
  kept.used = ++clock_;
  passed = {.reach = kept.row, .base = kept.row, .waits = snapshot};
}

void KvPages::drop_wait(Passed& passed) {
  const Snapshot snapshot = std::exchange(passed.waits, {});
  if (snapshot.made == 0) return;
  --kept_[snapshot.number].waiting;
  free_if_unheld(snapshot.number);
}

void KvPages::name(Sequence& sequence, const Snapshot& snapshot) {
  if (std::ranges::find(sequence.named, snapshot) != sequence.named.end()) return;
  sequence.named.push_back(snapshot);
  ++kept_[snapshot.number].names;
}

// A sequence no longer names it.
void KvPages::unname(const Snapshot& snapshot) {
  if (!is_there(snapshot)) return;
  --kept_[snapshot.number].names;
  free_if_unheld(snapshot.number);
}

void KvPages::free_if_unheld(uint32_t number) {
  const Kept& kept = kept_[number];
  if (kept.names == 0 && kept.waiting == 0 && !kept.cached) free_snapshot(number);
}

void KvPages::free_snapshot(uint32_t number) {
  CHECK(kept_[number].waiting == 0);
  kept_[number] = {};
  const uint32_t other = number ^ 1;
  if (kept_[other].made != 0) return free_halves_.push_back(number);
  std::erase(free_halves_, other);
  free_states_.push_back(number / 2);
  --halved_;
}

// Frees the snapshot that was not used for longest, unless a sequence waits to take it up.
bool KvPages::evict_snapshot() {
  std::optional<uint32_t> oldest;
  for (uint32_t number = 0; number < kept_.size(); ++number) {
    const Kept& kept = kept_[number];
    if (kept.made == 0 || kept.waiting > 0) continue;
    if (!oldest || kept.used < kept_[*oldest].used) oldest = number;
  }
  if (oldest) free_snapshot(*oldest);
  return oldest.has_value();
}

}  // namespace split
