#include "cloud_server/shedding.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace split::cloud {
namespace {

constexpr double kBusy = 0.8, kKv = 0.85;           // parts that are full enough
constexpr double kHigh = 1.0, kLow = 0.7;           // pressures
constexpr double kRise = 0.1, kFallASecond = 0.05;  // of the level
constexpr double kCalm = 5.0;                       // seconds
// A wish stands until the next one may come: on the way back it is what will be right then.
constexpr double kAhead = kFallASecond * Shedding::kBetweenWishes;
constexpr size_t kPartThatMoves = 10;  // one of so many sessions a round

double weight(Priority priority) {
  if (priority == Priority::kLow) return 1.5;
  return priority == Priority::kHigh ? 0.5 : 1.0;
}

}  // namespace

void Shedding::round(double now_s, const Measured& measured,
                     const std::map<Id, Session>& sessions) {
  pressure_ = std::max({measured.busy / kBusy, measured.kv / kKv, measured.p99_ms / slo_ms_});
  set_level(now_s);
  std::erase_if(wishes_, [&](const auto& wish) { return !sessions.contains(wish.first); });
  std::vector<Id> changed;
  const auto consider = [&](Id id, const Session& session) {
    Wish& have = wishes_.try_emplace(id, Wish{layers_, {}}).first->second;
    if (have.cut < session.can) {
      have.cut = rung(session.can, session.can);  // what it cannot hold is no wish, and no move
    } else if (next_cut(session, have.cut) != have.cut &&
               (!have.since || now_s >= *have.since + kBetweenWishes)) {
      changed.push_back(id);
    }
  };
  for (auto at = sessions.lower_bound(next_); at != sessions.end(); ++at)
    consider(at->first, at->second);
  for (auto at = sessions.begin(); at != sessions.lower_bound(next_); ++at)
    consider(at->first, at->second);
  const size_t most = std::max<size_t>(1, sessions.size() / kPartThatMoves);
  if (changed.size() > most) changed.resize(most);
  for (const Id id : changed) {
    wishes_[id] = {next_cut(sessions.at(id), wishes_[id].cut), now_s};
  }
  if (!changed.empty()) next_ = changed.back() + 1;
}

std::optional<int> Shedding::want(Id session) const {
  const auto found = wishes_.find(session);
  if (found == wishes_.end() || found->second.cut == layers_) return {};
  return found->second.cut;
}

std::optional<int> Shedding::want_of_new() const {
  const int cut = wanted({}, level_);
  return cut == layers_ ? std::nullopt : std::optional(cut);
}

double Shedding::price() const { return std::clamp(pressure_ - kLow, 0.0, 1.0); }

void Shedding::set_level(double now_s) {
  if (pressure_ >= kLow) low_since_.reset();
  if (pressure_ > kHigh) level_ = std::min(1.0, level_ + kRise);
  falls_ = false;
  if (pressure_ >= kLow) return;
  if (!low_since_) low_since_ = now_s;
  const double calm = *low_since_ + kCalm, from = std::max(calm, lowered_.value_or(calm));
  if (now_s <= from) return;
  falls_ = true;
  level_ = std::max(0.0, level_ - kFallASecond * (now_s - from));
  lowered_ = now_s;
}

// The one nearest to the cut of those that the edge can take; the higher of two.
int Shedding::rung(double cut, int can) const {
  int nearest = layers_;
  for (int part = kRungs - 1; part >= 0; --part) {
    const int rung = static_cast<int>(std::lround(static_cast<double>(layers_ * part) / kRungs));
    if (rung >= can && std::abs(rung - cut) < std::abs(nearest - cut)) nearest = rung;
  }
  return nearest;
}

int Shedding::wanted(const Session& session, double level) const {
  const double part = std::min(1.0, level * weight(session.priority));
  return rung(layers_ - part * (layers_ - session.can), session.can);
}

int Shedding::next_cut(const Session& session, int have) const {
  const int now = wanted(session, level_);
  return now >= have && falls_ ? wanted(session, std::max(0.0, level_ - kAhead)) : now;
}

}  // namespace split::cloud
