#include "cloud_server/state/shedding.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace split::cloud {
namespace {

constexpr double kWork = 0.8, kKv = 0.85;           // fractions that count as full
constexpr double kHigh = 1.0, kLow = 0.7;           // pressures
constexpr double kRise = 0.1, kFallASecond = 0.05;  // steps of the level
constexpr double kCalm = 5.0;                       // seconds
constexpr double kBackStep = 0.01;
constexpr size_t kPartThatMoves = 10;  // one of so many sessions moves in a round

double weight(Priority priority) {
  if (priority == Priority::kLow) return 1.5;
  return priority == Priority::kHigh ? 0.5 : 1.0;
}

}  // namespace

void Shedding::round(double now_s, const Measured& measured,
                     const std::map<Id, Session>& sessions) {
  pressure_ = std::max({measured.work / kWork, measured.kv / kKv, measured.p99_ms / slo_ms_});
  set_level(now_s);
  std::erase_if(cut_requests_, [&](const auto& wish) { return !sessions.contains(wish.first); });
  Taken taken = count(sessions);
  // The level falls from what is taken: nobody has to give back the excess.
  while ((falls_ || (stopped_ && ahead_)) && taken.asked > taken.layers) {
    level_ = std::max(0.0, level_ - kBackStep);
    taken = count(sessions);
  }
  size_t left = std::max<size_t>(1, sessions.size() / kPartThatMoves);
  for (const Id id : in_turn(sessions)) {
    CutRequest& have = cut_requests_.at(id);
    if (have.since && now_s < *have.since + kBetweenWishes) continue;
    const int cut = next_cut(sessions.at(id), have.cut, taken);
    if (cut == have.cut) continue;
    if (left == 0) {
      ahead_ |= rises_;
      break;
    }
    taken.layers += have.cut - cut;
    have = {cut, now_s, false};
    next_ = id + 1;
    --left;
  }
}

void Shedding::moved(double now_s, Id session) {
  const auto found = cut_requests_.find(session);
  if (found == cut_requests_.end() || std::exchange(found->second.followed, true)) return;
  found->second.since = now_s;
}

// The order of requests: low keys first, which are released last; then the longest waiting.
std::vector<Shedding::Id> Shedding::in_turn(const std::map<Id, Session>& sessions) const {
  std::vector<Id> ids;
  for (auto at = sessions.lower_bound(next_); at != sessions.end(); ++at) ids.push_back(at->first);
  for (auto at = sessions.begin(); at != sessions.lower_bound(next_); ++at)
    ids.push_back(at->first);
  std::ranges::stable_sort(ids, [&](Id a, Id b) {
    const Priority one = sessions.at(a).priority, other = sessions.at(b).priority;
    return falls_ ? one > other : one < other;
  });
  return ids;
}

// Limits the requests to what the edges can hold, and adds them up.
Shedding::Taken Shedding::count(const std::map<Id, Session>& sessions) {
  Taken taken;
  for (const auto& [id, session] : sessions) {
    CutRequest& have = cut_requests_.try_emplace(id, CutRequest{layers_, {}}).first->second;
    // A request that the edge cannot hold is dropped, and its end is no move.
    if (have.cut < session.can) have.cut = rung(session.can, session.can);
    taken.layers += layers_ - have.cut;
    taken.asked += part(session, level_) * (layers_ - session.can);
  }
  return taken;
}

std::optional<int> Shedding::want(Id session) const {
  const auto found = cut_requests_.find(session);
  if (found == cut_requests_.end() || found->second.cut == layers_) return {};
  return found->second.cut;
}

std::optional<int> Shedding::want_of_new() const {
  const int cut = wanted({});
  return cut == layers_ ? std::nullopt : std::optional(cut);
}

double Shedding::price() const { return std::clamp(pressure_ - kLow, 0.0, 1.0); }

void Shedding::set_level(double now_s) {
  if (pressure_ >= kLow) low_since_.reset();
  falls_ = false;
  const bool rises = pressure_ > kHigh;
  if (rises && !rises_) ahead_ = false;
  stopped_ = std::exchange(rises_, rises) && !rises;
  if (rises_) level_ = std::min(1.0, level_ + kRise);
  if (pressure_ >= kLow) return;
  if (!low_since_) low_since_ = now_s;
  const double calm = *low_since_ + kCalm, from = std::max(calm, lowered_.value_or(calm));
  if (now_s <= from) return;
  falls_ = true;
  level_ = std::max(0.0, level_ - kFallASecond * (now_s - from));
  lowered_ = now_s;
}

// Returns the rung nearest to the cut that the edge can take; the higher of two.
int Shedding::rung(double cut, int can) const {
  int nearest = layers_;
  for (int part = kRungs - 1; part >= 0; --part) {
    const int rung = static_cast<int>(std::lround(static_cast<double>(layers_ * part) / kRungs));
    if (rung >= can && std::abs(rung - cut) < std::abs(nearest - cut)) nearest = rung;
  }
  return nearest;
}

double Shedding::part(const Session& session, double level) {
  return std::min(1.0, level * weight(session.priority));
}

int Shedding::wanted(const Session& session) const {
  return rung(layers_ - part(session, level_) * (layers_ - session.can), session.can);
}

// The cut of a session that may move now: as deep as the level asks while too few layers are taken,
// its own while too many are.
int Shedding::next_cut(const Session& session, int have, const Taken& taken) const {
  if (falls_) return taken.layers - 0.5 * (layers_ - have) >= taken.asked ? layers_ : have;
  const bool asks = pressure_ >= kLow && taken.layers < taken.asked;
  return asks ? std::min(have, wanted(session)) : have;
}

}  // namespace split::cloud
