#include "edge_client/server/answers.h"

namespace split::edge {

Answers::Entry::Entry(Answers& answers, SplitForward& text) : answers_(answers), text_(text) {
  const std::lock_guard lock(answers.mutex_);
  id_ = ++answers.last_;
  answers.entries_.push_back(this);
}

Answers::Entry::~Entry() {
  const std::lock_guard lock(answers_.mutex_);
  answers_.entries_.remove(this);
}

std::vector<Answers::Answer> Answers::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<Answer> all;
  for (const Entry* entry : entries_) all.push_back({entry->id_, entry->text_.place()});
  return all;
}

void Answers::move(int cut, const std::shared_ptr<PlacedModel>& split) {
  const std::lock_guard lock(mutex_);
  for (Entry* entry : entries_) entry->text_.aim(cut, "asked", *split->batcher(), split);
}

std::optional<bool> Answers::exact() const {
  const std::lock_guard lock(mutex_);
  return exact_;
}

void Answers::set_exact(bool exact) {
  const std::lock_guard lock(mutex_);
  exact_ = exact;
}

}  // namespace split::edge
