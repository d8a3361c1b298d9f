#include "run/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <iterator>
#include <random>
#include <utility>

#include "base/sort.h"

namespace split {
namespace {

bool contains(const StageRange& outer, const StageRange& inner) {
  return outer.from <= inner.from && inner.to <= outer.to;
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

// Draws a seed, so that nobody can send ids that share a bucket.
uint64_t drawn() {
  std::random_device device;
  return uint64_t{device()} << 32 | device();
}

}  // namespace

PrefixCache::PrefixCache(KvPages& pages, Options options)
    : pages_(pages),
      options_(std::move(options)),
      most_(std::min<size_t>(pages.total(), options_.index_bytes / kNodeBytes)),
      began_(options_.clock()),
      seed_(drawn()),
      generation_(pages.generation()),
      buckets_(std::bit_ceil(std::max<size_t>(most_, 1)), kNone) {
  nodes_.reserve(most_);
}

// Poll period for a waiting client's leaving, which nothing signals.
constexpr std::chrono::milliseconds kLookForClient{100};

PrefixCache::~PrefixCache() {
  for (const Node& node : nodes_) {
    if (node.key.root == nullptr) continue;
    pages_.let_go_of_snapshot(node.state);
    pages_.let_go(node.page, generation_);
  }
}

PrefixCache::Computing::~Computing() {
  if (cache_ == nullptr) return;
  const std::lock_guard lock(cache_->mutex_);
  cache_->computing_.erase(entry_);
  cache_->changed_.notify_all();
}

uint32_t PrefixCache::known(const PrefixRoot& root, const SequenceHistory& rows,
                            const StageRange& range, uint32_t most) {
  const std::lock_guard lock(mutex_);
  refresh();
  const auto path = path_of(root, rows, range, most / kPageTokens);
  return static_cast<uint32_t>(usable(path, range) * kPageTokens);
}

PrefixCache::Taken PrefixCache::take(const PrefixRoot& root, SequenceId sequence, uint32_t own,
                                     const SequenceHistory& rows, const StageRange& range,
                                     uint32_t most, const std::function<bool()>& gone) {
  std::unique_lock lock(mutex_);
  std::vector<uint32_t> path;
  CHECK(own % kPageTokens == 0);
  size_t known = 0;
  for (;;) {
    refresh();
    path = path_of(root, rows, range, most / kPageTokens);
    known = path.size();
    path.resize(usable(path, range));
    const uint32_t have = std::max(own, static_cast<uint32_t>(path.size() * kPageTokens));
    if ((gone && gone()) || !is_computed(root, rows, range, have, most)) break;
    changed_.wait_for(lock, kLookForClient);
  }
  Taken taken;
  std::vector<uint32_t> found;
  StageRange in_all{Point::tokens(), Point::head()};
  for (const uint32_t at :
       std::span(path).subspan(std::min<size_t>(path.size(), own / kPageTokens))) {
    found.push_back(nodes_[at].page);
    in_all = {std::max(in_all.from, nodes_[at].range.from),
              std::min(in_all.to, nodes_[at].range.to)};
  }
  // Deeper blocks lack the rows before these.
  if (own > 0) in_all = range;
  const bool there = pages_.length(sequence) == own;  // false: a device was lost
  const KvPages::Snapshot state = path.empty() ? KvPages::Snapshot() : nodes_[path.back()].state;
  if (pages_.keeps_states(in_all) && !pages_.has(state, in_all)) in_all = range;
  if (there && !found.empty() && pages_.adopt(sequence, found, in_all, generation_, state)) {
    taken.rows = static_cast<uint32_t>(found.size() * kPageTokens);
    taken_rows_ += taken.rows;
    touch(path, true);
  }
  if (known > path.size()) taken.parts_at = static_cast<uint32_t>(known * kPageTokens);
  if (rows.size() - own - taken.rows >= kWorthWaiting) {
    taken.rest.entry_ = computing_.insert(computing_.end(), {root, rows, range});
    taken.rest.cache_ = this;
  }
  return taken;
}

size_t PrefixCache::usable(const std::vector<uint32_t>& path, const StageRange& range) const {
  size_t pages = path.size();
  if (!pages_.keeps_states(range)) return pages;
  while (pages > 0 && !pages_.has(nodes_[path[pages - 1]].state, range)) --pages;
  return pages;
}

uint32_t PrefixCache::step_end(const StageRange& range, uint32_t row, uint32_t parts_at) const {
  if (!pages_.keeps_states(range)) return UINT32_MAX;
  const uint32_t next = (row / kSnapshotEvery + 1) * kSnapshotEvery;
  return parts_at > row ? std::min(next, parts_at) : next;
}

uint32_t PrefixCache::end_of(const SequenceHistory& rows) {
  const uint32_t all = rows.size();
  if (all < kPageTokens) return 0;
  constexpr uint32_t kLastIds = kSnapshotRows - kPageTokens;
  const bool prompt = rows.phases().back() == Phase::kPrompt;
  const uint32_t row = prompt ? std::max(all - kLastIds, kPageTokens) : all;
  return row / kPageTokens * kPageTokens;
}

void PrefixCache::put(const PrefixRoot& name, SequenceId sequence, const SequenceHistory& rows,
                      const StageRange& range, uint32_t snapshot) {
  KvPages::Snapshot left;
  const auto leaves = [&] {
    const std::lock_guard lock(mutex_);
    refresh();
    const size_t pages = snapshot / kPageTokens;
    const auto path = path_of(name, rows, range, pages);
    return path.size() < pages || !pages_.has(nodes_[path.back()].state, range);
  };
  // Without the lock: it waits for the present step.
  if (options_.leave && snapshot > 0 && pages_.keeps_states(range) && leaves()) {
    left = options_.leave(sequence, range, snapshot);
  }
  const std::lock_guard lock(mutex_);
  refresh();
  erase_unused();
  const size_t whole = std::min(pages_.filled(sequence, range), rows.size()) / kPageTokens;
  Root& root = open_root(name);
  ++root.nodes;  // keeps the root open
  std::vector<uint32_t> path;
  while (path.size() < whole) {
    const Key key = key_of(root, path.empty() ? kNone : path.back(), rows, path.size());
    uint32_t at = find(key);
    const bool known = at != kNone;
    if (!known && !has_room(path)) break;
    if (!known || (nodes_[at].range != range && contains(range, nodes_[at].range))) {
      const auto page = pages_.share(sequence, path.size(), generation_);
      if (!page && !known) break;
      if (known && page) pages_.let_go(nodes_[at].page, generation_);
      if (!known) at = add(key);
      if (page) nodes_[at].page = *page, nodes_[at].range = range;
    }
    path.push_back(at);
  }
  const size_t pages = snapshot / kPageTokens;
  if (left.made != 0 && path.size() >= pages && pages_.hold_snapshot(left)) {
    pages_.let_go_of_snapshot(std::exchange(nodes_[path[pages - 1]].state, left));
  }
  touch(path, false);
  --root.nodes;
  close_if_empty(root);
  changed_.notify_all();
}

bool PrefixCache::evict_one() {
  const std::lock_guard lock(mutex_);
  refresh();
  while (pages_.spare() > 0) {
    const uint32_t node = victim();
    if (node == kNone) return false;
    const bool frees = pages_.held_by_cache_alone(nodes_[node].page);
    erase(node);
    ++evicted_;
    if (frees) return true;
  }
  return false;
}

void PrefixCache::forget(const PrefixRoot& root) {
  forget_if([&](const Root& other) {
    return other.owner->name == root.owner && other.salt == root.salt;
  });
}

void PrefixCache::keep_owners(const std::function<bool(const std::string& owner)>& keeps) {
  forget_if([&](const Root& root) { return !keeps(root.owner->name); });
}

void PrefixCache::forget_if(const std::function<bool(const Root&)>& is) {
  const std::lock_guard lock(mutex_);
  refresh();
  std::vector<uint32_t> all;
  for (uint32_t at = 0; at < nodes_.size(); ++at) {
    if (nodes_[at].key.root == nullptr || !is(*nodes_[at].key.root)) continue;
    nodes_[at].children = 0;  // children are erased too
    all.push_back(at);
  }
  for (const uint32_t at : all) erase(at);
}

size_t PrefixCache::pages() {
  const std::lock_guard lock(mutex_);
  refresh();
  erase_unused();
  return nodes_.size() - free_.size();
}

uint64_t PrefixCache::taken_rows() const {
  const std::lock_guard lock(mutex_);
  return taken_rows_;
}

uint64_t PrefixCache::evicted() const {
  const std::lock_guard lock(mutex_);
  return evicted_;
}

// Forgets all pages after a device was lost.
void PrefixCache::refresh() {
  if (generation_ == pages_.generation()) return;
  generation_ = pages_.generation();
  nodes_.clear();
  free_.clear();
  owners_.clear();
  std::ranges::fill(buckets_, kNone);
}

PrefixCache::Root& PrefixCache::open_root(const PrefixRoot& name) {
  Owner& owner = owners_[name.owner];
  owner.name = name.owner;
  Root& root = owner.roots[name.salt];
  root.owner = &owner;
  root.salt = name.salt;
  return root;
}

void PrefixCache::close_if_empty(Root& root) {
  if (root.nodes > 0) return;
  Owner& owner = *root.owner;
  owner.roots.erase(std::string(root.salt));
  if (owner.roots.empty()) owners_.erase(std::string(owner.name));
}

PrefixCache::Key PrefixCache::key_of(Root& root, uint32_t parent, const SequenceHistory& rows,
                                     size_t page) const {
  Key key{&root, parent, 0, {}};
  const size_t first = page * kPageTokens;
  std::copy_n(rows.tokens().begin() + static_cast<ptrdiff_t>(first), kPageTokens, key.ids.begin());
  const auto phases = rows.phases().subspan(first, kPageTokens);
  for (size_t i = 0; i < kPageTokens && !options_.phases_alike(); ++i) {
    if (phases[i] == Phase::kGenerate) key.phases = static_cast<uint16_t>(key.phases | 1u << i);
  }
  return key;
}

uint32_t& PrefixCache::bucket_of(const Key& key) {
  uint64_t hash = mixed(seed_, std::bit_cast<uintptr_t>(key.root));
  hash = mixed(hash, uint64_t{key.parent} << 16 | key.phases);
  for (size_t i = 0; i < key.ids.size(); i += 2) {
    hash = mixed(hash, uint64_t{static_cast<uint32_t>(key.ids[i])} << 32 |
                           static_cast<uint32_t>(key.ids[i + 1]));
  }
  return buckets_[(hash ^ hash >> 32) & (buckets_.size() - 1)];
}

uint32_t PrefixCache::find(const Key& key) {
  uint32_t at = bucket_of(key);
  while (at != kNone && nodes_[at].key != key) at = nodes_[at].next;
  return at;
}

// The nodes of the leading pages, as far as there are any.
std::vector<uint32_t> PrefixCache::path_of(const PrefixRoot& name, const SequenceHistory& rows,
                                           const StageRange& range, size_t pages) {
  std::vector<uint32_t> path;
  const auto owner = owners_.find(name.owner);
  if (owner == owners_.end()) return path;
  const auto root = owner->second.roots.find(name.salt);
  if (root == owner->second.roots.end()) return path;
  while (path.size() < pages) {
    const uint32_t parent = path.empty() ? kNone : path.back();
    const uint32_t at = find(key_of(root->second, parent, rows, path.size()));
    if (at == kNone || !contains(nodes_[at].range, range)) break;
    path.push_back(at);
  }
  return path;
}

// Whether another text of this root computes enough further rows to be worth waiting for.
bool PrefixCache::is_computed(const PrefixRoot& root, const SequenceHistory& rows,
                              const StageRange& range, uint32_t have, uint32_t most) const {
  const bool alike = options_.phases_alike();
  return std::ranges::any_of(computing_, [&](const Computing::Entry& other) {
    if (other.root != root || !contains(other.range, range)) return false;
    const uint32_t common = std::min(rows.common(other.rows, alike), most);
    return common / kPageTokens * kPageTokens >= have + kWorthWaiting;
  });
}

// Makes a place in the index, if need be by evicting a page that is not on this path.
bool PrefixCache::has_room(const std::vector<uint32_t>& path) {
  if (!free_.empty() || nodes_.size() < most_) return true;
  const uint32_t node = victim();
  if (node == kNone || std::ranges::find(path, node) != path.end()) return false;
  erase(node);
  ++evicted_;
  return true;
}

uint32_t PrefixCache::add(const Key& key) {
  if (free_.empty()) {
    free_.push_back(static_cast<uint32_t>(nodes_.size()));
    nodes_.emplace_back();
  }
  const uint32_t at = free_.back();
  free_.pop_back();
  uint32_t& bucket = bucket_of(key);
  nodes_[at] = {.key = key, .next = std::exchange(bucket, at)};
  if (key.parent != kNone) ++nodes_[key.parent].children;
  ++key.root->nodes;
  enter(at);
  return at;
}

// Marks a path as used, its first pages last: they are evicted last.
void PrefixCache::touch(const std::vector<uint32_t>& path, bool hit) {
  for (auto at = path.rbegin(); at != path.rend(); ++at) {
    leave(*at);
    nodes_[*at].hit |= hit;
    nodes_[*at].used = now();
    enter(*at);
  }
  if (path.empty()) return;
  const List& hits = nodes_[path[0]].key.root->owner->lists[1];
  while (hits.size > most_ / 5 * 4) {
    const uint32_t oldest = hits.oldest;
    leave(oldest);
    nodes_[oldest].hit = false;
    enter(oldest);
  }
}

void PrefixCache::enter(uint32_t at) {
  Node& node = nodes_[at];
  List& list = list_of(node);
  node.older = std::exchange(list.newest, at);
  node.newer = kNone;
  (node.older == kNone ? list.oldest : nodes_[node.older].newer) = at;
  ++list.size;
}

void PrefixCache::leave(uint32_t at) {
  const Node& node = nodes_[at];
  List& list = list_of(node);
  (node.older == kNone ? list.oldest : nodes_[node.older].newer) = node.newer;
  (node.newer == kNone ? list.newest : nodes_[node.newer].older) = node.older;
  --list.size;
}

// The page to evict: the owner's with most pages, preferring pages that only the cache holds.
uint32_t PrefixCache::victim() {
  std::vector<Owner*> owners;
  for (auto& [name, owner] : owners_) owners.push_back(&owner);
  sort_stably(owners, std::greater(), &Owner::nodes);
  for (const bool idle : {true, false}) {
    for (Owner* owner : owners) {
      for (const List& list : owner->lists) {
        for (size_t left = list.size; left > 0; --left) {
          const uint32_t at = list.oldest;
          const Node& node = nodes_[at];
          if (node.children == 0 && (!idle || pages_.held_by_cache_alone(node.page))) return at;
          leave(at);
          enter(at);
        }
      }
    }
  }
  return kNone;
}

void PrefixCache::erase(uint32_t at) {
  Node& node = nodes_[at];
  CHECK(node.children == 0);  // children would be found behind the node's next page
  uint32_t* link = &bucket_of(node.key);
  while (*link != at) link = &nodes_[*link].next;
  *link = node.next;
  leave(at);
  const uint32_t parent = node.key.parent;
  if (parent != kNone && nodes_[parent].children > 0) --nodes_[parent].children;
  pages_.let_go_of_snapshot(std::exchange(node.state, {}));
  pages_.let_go(node.page, generation_);
  Root& root = *std::exchange(node.key.root, nullptr);
  free_.push_back(at);
  --root.nodes;
  close_if_empty(root);
}

void PrefixCache::erase_unused() {
  const auto hour = static_cast<uint32_t>(std::chrono::seconds(kUnused).count());
  std::vector<uint32_t> old;
  for (const auto& [name, owner] : owners_) {
    for (const List& list : owner.lists) {
      for (uint32_t at = list.oldest; at != kNone && nodes_[at].used + hour <= now();
           at = nodes_[at].newer) {
        old.push_back(at);
      }
    }
  }
  for (const uint32_t at : old) {
    if (nodes_[at].children == 0) erase(at);
  }
}

uint32_t PrefixCache::now() const {
  return static_cast<uint32_t>(
      std::chrono::duration_cast<std::chrono::seconds>(options_.clock() - began_).count());
}

}  // namespace split
