#include "run/kv_pages.h"

#include <algorithm>
#include <utility>

namespace split {

KvPages::KvPages(uint32_t pages, uint32_t pages_per_sequence, int layers, States states)
    : total_(pages),
      pages_per_sequence_(pages_per_sequence),
      layers_(layers),
      states_(std::move(states)),
      pages_(pages),
      kept_(size_t{2} * states_.total) {
  // Low numbers are used first, so that memory that is not needed is never touched.
  for (uint32_t page = pages; page > 0; --page) free_.push_back(page - 1);
  for (uint32_t state = states_.total; state > 0; --state) free_states_.push_back(state - 1);
}

SequenceId KvPages::open(bool counts) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = sequences_[next_];
  sequence.filled.resize(static_cast<size_t>(layers_));
  sequence.counts = counts;
  sequence.blocks.resize(states_.blocks.size());
  return next_++;
}

void KvPages::close(SequenceId id) {
  const std::lock_guard lock(mutex_);
  cut(find(id), 0);
  sequences_.erase(id);
}

uint32_t KvPages::length(SequenceId id) const {
  const std::lock_guard lock(mutex_);
  return find(id).length;
}

uint32_t KvPages::filled(SequenceId id, int block) const {
  return filled(id, StageRange{block, block + 1});
}

uint32_t KvPages::filled(SequenceId id, const StageRange& range) const {
  const std::lock_guard lock(mutex_);
  const Sequence& sequence = find(id);
  const auto [first, count] = blocks_of(range);
  const auto blocks = std::span(sequence.filled).subspan(first, count);
  return blocks.empty() ? sequence.length : *std::ranges::min_element(blocks);
}

void KvPages::truncate(SequenceId id, uint32_t length) { CHECK(cut_back(id, length)); }

bool KvPages::cut_back(SequenceId id, uint32_t length) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  if (length > sequence.length) return false;
  cut(sequence, length);
  return true;
}

void KvPages::forget() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, sequence] : sequences_) cut(sequence, 0);
  for (uint32_t page = total_; page > 0; --page) {
    if (!pages_[page - 1].cached) continue;
    pages_[page - 1].cached = false;
    drop(page - 1);
  }
  spare_ = 0;
  for (uint32_t number = 0; number < kept_.size(); ++number) {
    if (kept_[number].made != 0) free_snapshot(number);
  }
  ++generation_;
}

bool KvPages::adopt(SequenceId id, std::span<const uint32_t> pages, const StageRange& range,
                    uint64_t generation, const Snapshot& snapshot) {
  const std::lock_guard lock(mutex_);
  if (generation != generation_ || (keeps_states(range) && !is_there(snapshot))) return false;
  Sequence& sequence = find(id);
  release(sequence, sequence.length / kPageTokens);
  CHECK(sequence.length % kPageTokens == 0);
  for (const uint32_t page : pages) {
    CHECK(pages_[page].cached);
    hold(page);
    sequence.pages.push_back(page);
  }
  CHECK(sequence.pages.size() <= pages_per_sequence_);
  const uint32_t before =
      std::exchange(sequence.length, static_cast<uint32_t>(sequence.pages.size() * kPageTokens));
  for_states(range, [&](size_t block) {
    CHECK(kept_[snapshot.number].row == sequence.length);
    take_up(sequence.blocks[block].text, snapshot);
  });
  if (keeps_states(range)) name(sequence, snapshot);
  fill(sequence, range, before, sequence.length);
  return true;
}

bool KvPages::fork(SequenceId id, SequenceId from, const StageRange& range, uint32_t length) {
  const std::lock_guard lock(mutex_);
  const Sequence& other = find(from);
  Sequence& sequence = find(id);
  CHECK(sequence.pages.empty() && length % kPageTokens == 0);
  if (length > other.length) return false;
  for (bool changed = true; changed;) {
    changed = false;
    for_states(range, [&](size_t block) {
      const Snapshot there = latest(other, block, length);
      const uint32_t row = there.made == 0 ? 0 : kept_[there.number].row;
      changed = changed || row < length;
      length = row;
    });
  }
  sequence.pages.assign(other.pages.begin(), other.pages.begin() + length / kPageTokens);
  for (const uint32_t page : sequence.pages) hold(page);
  sequence.length = length;
  for_states(range, [&](size_t block) {
    const Snapshot there = latest(other, block, length);
    if (there.made == 0) return;
    take_up(sequence.blocks[block].text, there);
    name(sequence, there);
  });
  fill(sequence, range, 0, length);
  return true;
}

bool KvPages::join(SequenceId id, SequenceId fork, const StageRange& range, uint32_t from,
                   Copies& copies) {
  const std::lock_guard lock(mutex_);
  Sequence& other = find(fork);
  Sequence& sequence = find(id);
  const size_t first = from / kPageTokens;
  CHECK(from % kPageTokens == 0);
  if (other.length < from || other.pages.size() > sequence.pages.size()) return false;
  for (size_t page = first; page < other.pages.size(); ++page) {
    std::swap(sequence.pages[page], other.pages[page]);
  }
  const auto [begin, count] = blocks_of(range);
  for (size_t block = begin + count; block < sequence.filled.size(); ++block) {
    if (sequence.filled[block] <= from) continue;
    if (!states_.blocks.empty() && states_.blocks[block]) lower(sequence, block, from);
    sequence.filled[block] = std::min(sequence.filled[block], from);
  }
  for_states(range, [&](size_t block) {
    if (sequence.filled[block] >= other.length) return;  // its own state is past the fork's
    CHECK(sequence.state && other.state && other.blocks[block].text.waits.made == 0);
    drop_wait(sequence.blocks[block].text);
    sequence.blocks[block].text = other.blocks[block].text;
    copies.push_back({StateCopy::Kind::kWhole, block, *other.state, *sequence.state, other.length});
  });
  fill(sequence, range, from, other.length);
  cut(other, 0);
  return true;
}

uint32_t KvPages::own(SequenceId id, uint32_t length) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  length = std::min(length, sequence.length);
  const size_t page = length / kPageTokens;
  const bool shared = page < sequence.pages.size() && pages_[sequence.pages[page]].holders > 1;
  cut(sequence, shared ? static_cast<uint32_t>(page * kPageTokens) : length);
  return sequence.length;
}

bool KvPages::owns(SequenceId id, uint32_t first, uint32_t end) const {
  const std::lock_guard lock(mutex_);
  const auto& pages = find(id).pages;
  const size_t behind = std::min(pages.size(), (size_t{end} + kPageTokens - 1) / kPageTokens);
  for (size_t i = first / kPageTokens; i < behind; ++i) {
    if (pages_[pages[i]].holders > 1) return false;
  }
  return true;
}

std::optional<uint32_t> KvPages::share(SequenceId id, size_t index, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  const Sequence& sequence = find(id);
  if (generation != generation_ || sequence.length < (index + 1) * kPageTokens) return {};
  const uint32_t page = sequence.pages[index];
  if (pages_[page].cached) return {};
  hold(page);
  pages_[page].cached = true;
  return page;
}

void KvPages::let_go(uint32_t page, uint64_t generation) {
  const std::lock_guard lock(mutex_);
  if (generation != generation_) return;
  CHECK(pages_[page].cached);
  if (pages_[page].spare()) --spare_;
  pages_[page].cached = false;
  drop(page);
}

bool KvPages::held_by_cache_alone(uint32_t page) const {
  const std::lock_guard lock(mutex_);
  return pages_[page].spare();
}

uint64_t KvPages::generation() const {
  const std::lock_guard lock(mutex_);
  return generation_;
}

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

bool KvPages::reserve(SequenceId id, uint32_t length, const StageRange& range,
                      std::optional<uint32_t> from) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  const size_t wanted = (size_t{length} + kPageTokens - 1) / kPageTokens;
  CHECK(wanted <= pages_per_sequence_);
  if (wanted > sequence.pages.size() + free_.size()) return false;
  bool state = false, apart = false;
  const size_t lacks = lacking(sequence, range, from, state, apart);
  while (lacks > free_states_.size()) {
    if (!sequence.counts || !evict_snapshot()) return false;
  }
  const auto take = [&] {
    const uint32_t number = free_states_.back();
    free_states_.pop_back();
    return number;
  };
  if (state) sequence.state = take();
  if (apart) {
    sequence.apart = take();
    for (BlockState& block : sequence.blocks) block.again = 0, block.apart = {};
  }
  for_states(range, [&](size_t block) {
    if (!from || *from == 0 || goes_on(sequence, block, *from)) return;
    if (is_apart_at(sequence, block, *from)) return;
    const Snapshot there = latest(sequence, block, *from);
    if (there.made == 0 || kept_[there.number].row != *from) return;  // evicted since again()
    take_up(sequence.blocks[block].apart, there);
    sequence.blocks[block].again = *from;
  });
  while (sequence.pages.size() < wanted) {
    sequence.pages.push_back(free_.back());
    free_.pop_back();
    hold(sequence.pages.back());
    if (!sequence.counts) ++uncounted_;
  }
  return true;
}

bool KvPages::lacks_pages(SequenceId id, uint32_t length) const {
  const std::lock_guard lock(mutex_);
  return (size_t{length} + kPageTokens - 1) / kPageTokens > find(id).pages.size() + free_.size();
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

template <typename See>
void KvPages::for_states(const StageRange& range, const See& see) const {
  if (states_.total == 0) return;
  const auto [first, count] = blocks_of(range);
  for (size_t block = first; block < first + count; ++block) {
    if (states_.blocks[block]) see(block);
  }
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

void KvPages::advance(SequenceId id, const StageRange& range, uint32_t length) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  CHECK(size_t{length} <= sequence.pages.size() * kPageTokens);
  sequence.length = std::max(sequence.length, length);
  const auto [first, count] = blocks_of(range);
  for (size_t block = first; block < first + count; ++block) {
    const bool apart = !sequence.blocks.empty() && sequence.blocks[block].is_apart;
    uint32_t& rows = apart ? sequence.blocks[block].again : sequence.filled[block];
    rows = apart ? length : std::max(rows, length);
  }
}

size_t KvPages::copy_table(SequenceId id, uint32_t* out) const {
  const std::lock_guard lock(mutex_);
  const auto& pages = find(id).pages;
  std::copy(pages.begin(), pages.end(), out);
  return pages.size();
}

uint32_t KvPages::states_in_use() const {
  const std::lock_guard lock(mutex_);
  return states_.total - halved_ - static_cast<uint32_t>(free_states_.size());
}

uint32_t KvPages::snapshots() const {
  const std::lock_guard lock(mutex_);
  return 2 * halved_ - static_cast<uint32_t>(free_halves_.size());
}

uint32_t KvPages::in_use() const {
  const std::lock_guard lock(mutex_);
  return total_ - spare_ - uncounted_ - static_cast<uint32_t>(free_.size());
}

uint32_t KvPages::spare() const {
  const std::lock_guard lock(mutex_);
  return spare_;
}

KvPages::Sequence& KvPages::find(SequenceId id) {
  const auto at = sequences_.find(id);
  CHECK(at != sequences_.end());
  return at->second;
}
const KvPages::Sequence& KvPages::find(SequenceId id) const {
  const auto at = sequences_.find(id);
  CHECK(at != sequences_.end());
  return at->second;
}

std::pair<size_t, size_t> KvPages::blocks_of(const StageRange& range) const {
  return {static_cast<size_t>(range.from.blocks_before(layers_)),
          static_cast<size_t>(range.blocks(layers_))};
}

void KvPages::cut(Sequence& sequence, uint32_t length) {
  for (bool changed = true; changed;) {
    changed = false;
    for_states({}, [&](size_t block) {
      if (sequence.filled[block] < sequence.length) return;
      const uint32_t there = goes_back(sequence, block, length);
      changed = changed || there < length;
      length = there;
    });
  }
  for_states({}, [&](size_t block) { lower(sequence, block, length); });
  sequence.length = length;
  for (uint32_t& filled : sequence.filled) filled = std::min(filled, length);
  for (BlockState& state : sequence.blocks) {
    state.again = std::min(state.again, length);
    if (state.again < state.apart.base) drop_wait(state.apart);
  }
  std::erase_if(sequence.named, [&](const Snapshot& snapshot) {
    if (is_there(snapshot) && kept_[snapshot.number].row <= length) return false;
    unname(snapshot);
    return true;
  });
  if (length == 0) {
    drop_state(sequence.state);
    drop_apart(sequence);
    sequence.blocks.assign(sequence.blocks.size(), {});
  }
  release(sequence, (size_t{length} + kPageTokens - 1) / kPageTokens);
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

// Notes that the range's blocks, which have the rows before `from`, have those before `end` too.
void KvPages::fill(Sequence& sequence, const StageRange& range, uint32_t from, uint32_t end) const {
  const auto [first, count] = blocks_of(range);
  for (uint32_t& filled : std::span(sequence.filled).subspan(first, count)) {
    CHECK(filled >= from);
    filled = std::max(filled, end);
  }
}

void KvPages::release(Sequence& sequence, size_t keep) {
  while (sequence.pages.size() > keep) {
    drop(sequence.pages.back());
    sequence.pages.pop_back();
    if (!sequence.counts) --uncounted_;
  }
}

void KvPages::hold(uint32_t page) {
  if (pages_[page].spare()) --spare_;
  ++pages_[page].holders;
}

void KvPages::drop(uint32_t page) {
  CHECK(pages_[page].holders > 0);
  if (--pages_[page].holders == 0) free_.push_back(page);
  if (pages_[page].spare()) ++spare_;
}

}  // namespace split
