#include "edge_client/engine/running_texts.h"

namespace split::edge {

RunningTexts::Entry::Entry(RunningTexts& answers, SplitForward& text, bool repeats)
    : answers_(answers), text_(text), repeats_(repeats) {
  const std::lock_guard lock(answers.mutex_);
  id_ = ++answers.last_;
  answers.entries_.push_back(this);
  if (answers.entries_.size() == 1 && answers.told_) answers.told_(true);
  answers.offer_to(*this);
}

RunningTexts::Entry::~Entry() {
  const std::lock_guard lock(answers_.mutex_);
  answers_.entries_.remove(this);
  if (answers_.entries_.empty() && answers_.told_) answers_.told_(false);
}

std::map<uint64_t, SplitForward::Place> RunningTexts::places() const {
  const std::lock_guard lock(mutex_);
  std::map<uint64_t, SplitForward::Place> all;
  for (const Entry* entry : entries_) all[entry->id_] = entry->text_.place();
  return all;
}

void RunningTexts::move(Cut cut, const std::shared_ptr<PlacedModel>& split) {
  const std::lock_guard lock(mutex_);
  for (Entry* entry : entries_) {
    entry->text_.aim(cut, split ? split->batcher() : nullptr, split);
  }
}

void RunningTexts::choose_by(Forecasts& forecasts, std::function<void(const std::string&)> tell) {
  const std::lock_guard lock(mutex_);
  forecasts_ = &forecasts;
  tell_ = std::move(tell);
}

// Call with the lock held.
std::optional<FastestCut::Now> RunningTexts::choice() const {
  if (forecasts_ == nullptr || !offered_) return std::nullopt;
  const Placement& place = offered_->at->place;
  return forecasts_->choose(place.cut.blocks(), place.head_on_cloud);
}

std::shared_ptr<PlacedModel> RunningTexts::next() const {
  std::unique_lock lock(mutex_);
  const std::optional<FastestCut::Now> now = choice();
  if (!now) return nullptr;
  const PlacedModel& landed = *offered_->at;
  const bool moves = !next_ || next_->place.cut != now->begin;
  if (moves || next_->tail != landed.tail || next_->exact != landed.is_exact()) {
    next_ = std::make_shared<PlacedModel>(landed.at(now->begin));
    next_->exact = next_->rounds() ? false : landed.is_exact();
    next_->leaves_lost_cloud &= may_move(next_->exact, exact_only_, false);
  }
  std::shared_ptr<PlacedModel> next = next_;
  // Tells only when the places change, not their figures.
  const std::string words = words_of(*now);
  const bool news = !words.empty() && told_begin_ != now->begin;
  if (news) told_begin_ = now->begin;
  const auto tell = tell_;
  lock.unlock();
  if (news && tell) tell(words);
  return next;
}

void RunningTexts::go_on_at(const std::optional<AvailableCut>& place) {
  const std::lock_guard lock(mutex_);
  place_ = place;
  if (place) {
    exact_ = place->at->exact;
    offered_ = place;
  } else {
    forecasts_ = nullptr;
  }
  for (Entry* entry : entries_) offer_to(*entry);
}

std::optional<AvailableCut> RunningTexts::here() const {
  const std::lock_guard lock(mutex_);
  return offered_;
}

void RunningTexts::offer(const AvailableCut& place) {
  const std::lock_guard lock(mutex_);
  offered_ = place;
  exact_ = place.at->exact;
  for (Entry* entry : entries_) offer_to(*entry);
}

// Call with the lock held.
void RunningTexts::offer_to(Entry& entry) const {
  if (!offered_ || !may_move(offered_->at->is_exact(), exact_only_, entry.repeats_)) return;
  const std::optional<FastestCut::Now> now = choice();
  entry.text_.offer(*offered_->at->batcher(), offered_->at,
                    {.lowest = offered_->at->place.cut.blocks(),
                     .offloads = place_ && !now,
                     .quicker = now ? now->here : std::nullopt,
                     .whole_at = offered_->whole_at});
}

void RunningTexts::grow_beside(std::shared_ptr<const PlacedModel> model) {
  const std::lock_guard lock(mutex_);
  beside_ = std::move(model);
}

std::shared_ptr<const PlacedModel> RunningTexts::grown() const {
  const std::lock_guard lock(mutex_);
  return beside_;
}

FetchCounts RunningTexts::grown_bytes() const {
  const std::shared_ptr<const PlacedModel> model = grown();
  return model ? model->counts() : FetchCounts();
}

void RunningTexts::on_busy(std::function<void(bool)> told) {
  const std::lock_guard lock(mutex_);
  told_ = std::move(told);
  if (told_) told_(!entries_.empty());
}

void describe_place(Receipt& receipt, const RunningTexts& answers, const ModelConfig& config) {
  if (!receipt.device.empty()) return;
  receipt.fetched = answers.grown_bytes();
  const std::optional<AvailableCut> place = answers.here();
  if (!place || receipt.counts.moves.empty()) return;
  const PlacedModel& at = *place->at;
  receipt.device = at.device();
  receipt.edge_profile = at.profile;
  receipt.edge_stages = at.place.on_edge(config);
}

std::optional<bool> RunningTexts::exact() const {
  const std::lock_guard lock(mutex_);
  return *other_bits_ ? false : exact_;
}

void RunningTexts::set_exact(bool exact) {
  const std::lock_guard lock(mutex_);
  exact_ = exact;
}

}  // namespace split::edge
