#include "run/kv_pages.h"

#include <algorithm>

namespace split {

KvPages::KvPages(uint32_t pages, uint32_t pages_per_sequence)
    : total_(pages), pages_per_sequence_(pages_per_sequence) {
  // Low numbers are used first, so that memory that is never needed is never touched.
  for (uint32_t page = pages; page > 0; --page) free_.push_back(page - 1);
}

SequenceId KvPages::open() {
  const std::lock_guard lock(mutex_);
  sequences_[next_] = {};
  return next_++;
}

void KvPages::close(SequenceId id) {
  const std::lock_guard lock(mutex_);
  release(find(id), 0);
  sequences_.erase(id);
}

uint32_t KvPages::length(SequenceId id) const {
  const std::lock_guard lock(mutex_);
  return find(id).length;
}

void KvPages::truncate(SequenceId id, uint32_t length) { CHECK(cut_back(id, length)); }

bool KvPages::cut_back(SequenceId id, uint32_t length) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  if (length > sequence.length) return false;
  sequence.length = length;
  release(sequence, (size_t{length} + kPageTokens - 1) / kPageTokens);
  return true;
}

void KvPages::forget() {
  const std::lock_guard lock(mutex_);
  for (auto& [id, sequence] : sequences_) {
    sequence.length = 0;
    release(sequence, 0);
  }
}

bool KvPages::reserve(SequenceId id, uint32_t length) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  const size_t wanted = (size_t{length} + kPageTokens - 1) / kPageTokens;
  CHECK(wanted <= pages_per_sequence_);
  if (wanted > sequence.pages.size() + free_.size()) return false;
  while (sequence.pages.size() < wanted) {
    sequence.pages.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void KvPages::advance(SequenceId id, uint32_t length) {
  const std::lock_guard lock(mutex_);
  Sequence& sequence = find(id);
  CHECK(size_t{length} <= sequence.pages.size() * kPageTokens);
  sequence.length = length;
}

size_t KvPages::copy_table(SequenceId id, uint32_t* out) const {
  const std::lock_guard lock(mutex_);
  const auto& pages = find(id).pages;
  std::copy(pages.begin(), pages.end(), out);
  return pages.size();
}

uint32_t KvPages::in_use() const {
  const std::lock_guard lock(mutex_);
  return total_ - static_cast<uint32_t>(free_.size());
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

void KvPages::release(Sequence& sequence, size_t keep) {
  while (sequence.pages.size() > keep) {
    free_.push_back(sequence.pages.back());
    sequence.pages.pop_back();
  }
}

}  // namespace split
