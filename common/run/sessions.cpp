#include "run/sessions.h"

namespace split {

Sessions::~Sessions() {
  for (auto& [id, session] : sessions_) session->batcher->shard().pages().close(session->sequence);
}

Sessions::Put Sessions::put(const SessionName& name, const std::string& model,
                            const StageRange& range, Batcher& batcher, size_t most,
                            std::optional<PrefixRoot> root) {
  const std::lock_guard lock(mutex_);
  const auto at = sessions_.find(name);
  if (at != sessions_.end()) {
    const bool same = at->second->model == model && at->second->range == range;
    return same ? Put::kExists : Put::kConflict;
  }
  const auto now = std::chrono::steady_clock::now();
  const auto owner = owners_.find(name.owner);
  if (most != 0 && owner != owners_.end() && owner->second.sessions >= most) {
    const Session::Order& idle = owner->second.idle;
    if (idle.empty() || now - idle.front()->used_ < abandoned_) return Put::kOwnerFull;
    evict_first(idle);
  }
  if (sessions_.size() >= limit_ && !evict_first(idle_)) {
    throw Error(ErrorKind::kBusy, cat("all ", limit_, " sessions are in use, try again later"));
  }
  auto session = std::make_shared<Session>(name);
  session->model = model;
  session->range = range;
  session->batcher = &batcher;
  session->root = std::move(root);
  session->used_ = now;
  Group& of_batcher = batchers_[&batcher];
  Group& of_owner = owners_[name.owner];
  const auto placed = sessions_.emplace(name, session).first;
  try {
    session->sequence = batcher.shard().pages().open();
  } catch (...) {  // out of memory
    sessions_.erase(placed);
    if (of_owner.sessions == 0) owners_.erase(name.owner);
    throw;
  }
  ++of_batcher.sessions;
  ++of_owner.sessions;
  enter(*session);
  return Put::kCreated;
}

void Sessions::enter(Session& session) {
  session.of_all_.enter(idle_);
  session.of_owner_.enter(owners_.find(session.name.owner)->second.idle);
  if (session.batcher->pages().length(session.sequence) > 0) {
    session.of_batcher_.enter(batchers_.find(session.batcher)->second.idle);
  }
}

void Sessions::leave(Session& session) {
  session.of_all_.leave();
  session.of_owner_.leave();
  session.of_batcher_.leave();
}

void Sessions::erase(Map::iterator at) {
  Session& session = *at->second;
  leave(session);
  session.batcher->shard().pages().close(session.sequence);
  --batchers_.find(session.batcher)->second.sessions;
  const auto owner = owners_.find(session.name.owner);
  if (--owner->second.sessions == 0) owners_.erase(owner);
  sessions_.erase(at);
}

bool Sessions::evict_first(const Session::Order& order) {
  if (order.empty()) return false;
  ++looked_;
  erase(sessions_.find(order.front()->name));
  ++evicted_;
  return true;
}

bool Sessions::evict_one(const Batcher& batcher) {
  const std::lock_guard lock(mutex_);
  const auto group = batchers_.find(&batcher);
  if (group == batchers_.end()) return false;
  Session::Order& idle = group->second.idle;
  // A lost device took all sessions' rows: each is looked at once until it has rows again.
  while (!idle.empty() && batcher.pages().length(idle.front()->sequence) == 0) {
    ++looked_;
    idle.front()->of_batcher_.leave();
  }
  return evict_first(idle);
}

bool Sessions::with(const SessionName& name, const std::function<void(Session&)>& use) {
  std::unique_lock lock(mutex_);
  const auto at = sessions_.find(name);
  if (at == sessions_.end()) return false;
  const std::shared_ptr<Session> session = at->second;
  leave(*session);
  const uint64_t ticket = session->next_ticket_++;
  turn_.wait(lock, [&] { return session->serving_ == ticket; });
  // A session that another client removed while this step waited is still here: remove() takes a
  // ticket too.
  const auto still = sessions_.find(name);
  const bool there = still != sessions_.end() && still->second == session;
  lock.unlock();
  std::exception_ptr error;
  if (there) {
    try {
      use(*session);
    } catch (...) {
      error = std::current_exception();
    }
  }
  lock.lock();
  session->used_ = std::chrono::steady_clock::now();
  ++session->serving_;
  if (there && session->next_ticket_ == session->serving_) {
    const auto left = sessions_.find(name);  // use() may have removed it
    if (left != sessions_.end() && left->second == session) enter(*session);
  }
  turn_.notify_all();
  if (error != nullptr) std::rethrow_exception(error);
  return there;
}

bool Sessions::remove(const SessionName& name) {
  return with(name, [&](Session& session) {
    const std::lock_guard lock(mutex_);
    const auto at = sessions_.find(name);
    if (at != sessions_.end() && at->second.get() == &session) erase(at);
  });
}

size_t Sessions::size_of(const Batcher& batcher) const {
  const std::lock_guard lock(mutex_);
  const auto group = batchers_.find(&batcher);
  return group == batchers_.end() ? 0 : group->second.sessions;
}

bool Sessions::has(const SessionName& name) const {
  const std::lock_guard lock(mutex_);
  return sessions_.contains(name);
}

size_t Sessions::size() const {
  const std::lock_guard lock(mutex_);
  return sessions_.size();
}

}  // namespace split
