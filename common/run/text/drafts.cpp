#include "run/text/drafts.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace split {
namespace {

constexpr double kDecay = 0.95;  // factor of earlier outcomes with each new one
// Least gain of a draft: chances and times are guesses too.
constexpr double kWorth = 1.05;
constexpr double kPriorSeen = 3;                         // weight of the prior, in outcomes
constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15ull;  // 2^64 over the golden ratio

uint64_t hash_of(std::span<const int32_t> ids) {
  uint64_t hash = ids.size();
  for (const int32_t id : ids) {
    hash = (hash ^ static_cast<uint32_t>(id)) * kMultiplier;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

// --- DraftText

void DraftText::push(int32_t id) {
  const auto place = static_cast<uint32_t>(ids_.size());
  for (size_t length = 1; length <= std::min(kLongest, ids_.size()); ++length)
    after_[hash_of(std::span(ids_).last(length))] = place;
  ids_.push_back(id);
}

int32_t DraftText::after(std::span<const int32_t> suffix, size_t length) const {
  const std::span<const int32_t> wanted = suffix.last(length);
  const auto found = after_.find(hash_of(wanted));
  if (found == after_.end() || found->second < length) return -1;
  const std::span<const int32_t> there = std::span(ids_).subspan(found->second - length, length);
  return std::ranges::equal(there, wanted) ? ids_[found->second] : -1;  // -1: hashes collide
}

// --- DraftRecord

double DraftRecord::chance(size_t length, size_t place) const {
  const double prior = place == 0 ? prior_ : chance(length, place - 1);
  const Count& count = counts_[length - 1][place];
  return (count.right + kPriorSeen * prior) / (count.all + kPriorSeen);
}

void DraftRecord::add(size_t length, size_t place, bool right) {
  Count& count = counts_[length - 1][place];
  count.right = kDecay * count.right + (right ? 1 : 0);
  count.all = kDecay * count.all + 1;
}

// --- StepTimes

void DraftTimes::add(size_t rows, double ms) {
  Times& times = times_[rows - 1];
  times.ms[times.count++ % times.ms.size()] = ms;
}

double DraftTimes::ms(size_t rows) const {
  constexpr size_t kTried = 3;
  for (size_t i = rows; i > 0; --i) {
    const Times& times = times_[i - 1];
    if (times.count < kTried) continue;
    return *std::min_element(times.ms.begin(),
                             times.ms.begin() + std::min(times.count, times.ms.size()));
  }
  return 1;  // nothing known: all sizes cost as much
}

// --- DraftMemory

std::vector<std::shared_ptr<const DraftText>> DraftMemory::texts() const {
  const std::lock_guard lock(mutex_);
  return {texts_.begin(), texts_.end()};
}

DraftRecord DraftMemory::record(bool drawn) const {
  const std::lock_guard lock(mutex_);
  return records_[drawn ? 1 : 0];
}

void DraftMemory::keep(std::span<const int32_t> ids, const DraftRecord& record, bool drawn) {
  const auto text = std::make_shared<DraftText>();
  for (const int32_t id : ids.last(std::min(ids.size(), kMostIds))) text->push(id);
  const std::lock_guard lock(mutex_);
  texts_.push_front(text);
  if (texts_.size() > kTexts) texts_.pop_back();
  records_[drawn ? 1 : 0] = record;
}

DraftTimes DraftMemory::times() const {
  const std::lock_guard lock(mutex_);
  return times_;
}

void DraftMemory::keep(const DraftTimes& times) {
  const std::lock_guard lock(mutex_);
  times_ = times;
}

// --- How many

size_t DraftLimits::count() const {
  return price > kDear ? 0 : std::min({most, cloud, kMostDrafts});
}

size_t best_draft(std::span<const double> chances, const DraftCost& cost) {
  double tokens = 1, all_right = 1, best = kWorth / cost.price_ms(1);
  size_t best_count = 0;
  for (size_t count = 1; count <= std::min(chances.size(), kMostDrafts); ++count) {
    all_right *= chances[count - 1];
    tokens += all_right;
    const double rate = tokens / cost.price_ms(count + 1);
    if (rate <= best) continue;
    best = rate;
    best_count = count;
  }
  return best_count;
}

// --- Drafts

Drafts::Drafts(std::span<const int32_t> prompt, DraftMemory* memory, bool drawn)
    : memory_(memory),
      drawn_(drawn),
      before_(memory != nullptr ? memory->texts()
                                : std::vector<std::shared_ptr<const DraftText>>()),
      record_(memory != nullptr ? memory->record(drawn) : DraftRecord(drawn)) {
  for (const int32_t id : prompt) text_.push(id);
}

Drafts::~Drafts() {
  if (memory_ != nullptr) memory_->keep(text_.ids(), record_, drawn_);
}

// Guesses ids, each from the text and the guesses before it.
void Drafts::guess() {
  guesses_.clear();
  lengths_.clear();
  const std::span<const int32_t> ids = text_.ids();
  std::vector<int32_t> suffix(
      ids.end() - static_cast<ptrdiff_t>(std::min(ids.size(), DraftText::kLongest)), ids.end());
  const auto one = [&](const DraftText& text) {
    for (size_t length = std::min(DraftText::kLongest, suffix.size()); length > 0; --length) {
      const int32_t id = text.after(suffix, length);
      if (id < 0) continue;
      guesses_.push_back(id);
      lengths_.push_back(length);
      suffix.push_back(id);
      return true;
    }
    return false;
  };
  while (guesses_.size() < kMostDrafts) {
    if (one(text_)) continue;
    if (!std::ranges::any_of(before_, [&](const auto& text) { return one(*text); })) return;
  }
}

std::span<const int32_t> Drafts::next(const DraftLimits& limits, const DraftCost* cost) {
  if (!std::exchange(guessed_, true)) guess();
  size_t count = std::min(limits.count(), guesses_.size());
  if (cost != nullptr && count > 0) {
    std::array<double, kMostDrafts> chances{};
    for (size_t i = 0; i < count; ++i) chances[i] = record_.chance(lengths_[i], i);
    count = best_draft(std::span(chances).first(count), *cost);
  }
  return std::span(guesses_).first(count);
}

void Drafts::took(std::span<const int32_t> ids) {
  CHECK(!ids.empty());
  // Unsent guesses are counted as well, as far as the text shows whether they were right: else
  // drafting, once it did not pay, would never be known to pay again.
  if (!guessed_) guess();
  for (size_t i = 0; i < std::min(ids.size(), guesses_.size()); ++i) {
    const bool right = ids[i] == guesses_[i];
    record_.add(lengths_[i], i, right);
    if (!right) break;
  }
  guessed_ = false;
  for (const int32_t id : ids) text_.push(id);
}

}  // namespace split
