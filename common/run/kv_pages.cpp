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
