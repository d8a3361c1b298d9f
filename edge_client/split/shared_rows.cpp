#include "edge_client/split/shared_rows.h"

namespace split::edge {

PrefixCache* SharedRows::prefixes() const {
  const bool here = root && sides_.tail != nullptr && sides_.cut < sides_.layers();
  return here ? sides_.tail->batcher().prefixes() : nullptr;
}

PrefixRoot SharedRows::root_here() const {
  return {root->owner, cat(sides_.blocks(), "\n", root->salt)};
}

uint32_t SharedRows::known(std::span<const int32_t> prompt) const {
  PrefixCache* const cache = prefixes();
  if (cache == nullptr || prompt.empty()) return 0;
  SequenceHistory rows;
  rows.append(prompt, Phase::kPrompt);
  return cache->known(root_here(), rows, blocks(), rows.size() - 1);
}

Task<void> SharedRows::take(SequenceRows rows, std::optional<PrefixCache::Taken>& taken) {
  PrefixCache* const cache = prefixes();
  if (cache == nullptr || rows.phase != Phase::kPrompt || sides_.history.size() > 0) co_return;
  SequenceHistory whole;
  whole.append(rows.tokens, rows.phase);
  const PrefixRoot own = root_here();
  const SequenceId sequence = sides_.tail->sequence();
  const TakeRows asked{[&] {
    taken.emplace(cache->take(own, sequence, 0, whole, blocks(), rows.wanted.first(rows.count()),
                              sides_.requester.gone));
  }};
  co_await asked;
  sides_.history.append(rows.tokens.first(taken->rows), rows.phase);
  sides_.prompt_rows = taken->rows;
  parts_at_ = taken->parts_at;
}

uint32_t SharedRows::step_end(uint32_t row) const {
  PrefixCache* const cache = prefixes();
  return cache == nullptr ? UINT32_MAX : cache->step_end(blocks(), row, parts_at_);
}

void SharedRows::put(std::optional<uint32_t> snapshot) {
  PrefixCache* const cache = prefixes();
  if (cache == nullptr) return;
  put_ = sides_.history.size();
  cache->put(root_here(), sides_.tail->sequence(), sides_.history, blocks(),
             snapshot.value_or(PrefixCache::end_of(sides_.history)));
}

void SharedRows::put_far() {
  put_ = std::min(put_, sides_.history.size());
  if (prefixes() == nullptr || sides_.history.size() < put_ + PrefixCache::kSnapshotEvery) return;
  if (sides_.tail->pages().keeps_states(blocks())) put();
}

void SharedRows::forget() {
  if (PrefixCache* const cache = prefixes()) cache->forget(root_here());
  root.reset();
}

}  // namespace split::edge
