#include "cloud_server/state/cut_requests.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace split::cloud {
namespace {

// Most guessed rows of a step, beside its next token: fewer when rows are expensive.
constexpr int kMostDraft = 7;
int draft_at(double price) {
  if (price > 0.5) return 0;
  return price > 0.2 ? kMostDraft / 2 : kMostDraft;
}

double seconds(CutRequests::Time time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

}  // namespace

void CutRequests::comes(SequenceId session, Point to) {
  const std::lock_guard lock(mutex_);
  const Time now = clock_();
  Session& own = sessions_[session];
  own.seen = now;
  const auto before = std::exchange(own.to, to);
  if (before && *before != to) shedding_.moved(seconds(now), session);
}

wire::LoadNote CutRequests::told(SequenceId session, Priority priority, std::optional<int> can) {
  const std::lock_guard lock(mutex_);
  const Time now = clock_();
  Session& own = sessions_[session];
  own.seen = now;
  if (can) own.is.emplace(Shedding::Session{priority, *can});
  round(now);
  return note(shedding_.want(session));
}

wire::LoadNote CutRequests::told() {
  const std::lock_guard lock(mutex_);
  round(clock_());
  return note(shedding_.want_of_new());
}

bool CutRequests::asks(SequenceId session) const {
  const std::lock_guard lock(mutex_);
  return shedding_.want(session).has_value();
}

bool CutRequests::rest() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::none_of(
      sessions_, [&](const auto& session) { return clock_() - session.second.seen <= kIdle; });
}

double CutRequests::pressure() {
  const std::lock_guard lock(mutex_);
  round(clock_());
  return shedding_.pressure();
}

wire::LoadNote CutRequests::note(std::optional<int> want) const {
  const double price = std::round(100 * shedding_.price()) / 100;
  return {want, price, draft_at(price)};
}

// Runs a round when it is due.
void CutRequests::round(Time now) {
  if (next_ && now < *next_) return;
  next_ = now + kRound;
  std::erase_if(sessions_, [&](const auto& session) { return now - session.second.seen > kIdle; });
  std::map<Shedding::Id, Shedding::Session> sessions;
  for (const auto& [id, session] : sessions_) {
    if (session.is) sessions.emplace(id, *session.is);
  }
  shedding_.round(seconds(now), measure_(), sessions);
}

}  // namespace split::cloud
