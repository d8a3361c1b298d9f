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
constexpr size_t kPartThatMoves = 10;               // one of so many sessions a round

double weight(Priority priority) {
  if (priority == Priority::kLow) return 1.5;
  return priority == Priority::kHigh ? 0.5 : 1.0;
}

}  // namespace

void Shedding::round(double now_s, const Measured& measured,
                     const std::map<Id, Session>& sessions) {
  pressure_ = std::max({measured.busy / kBusy, measured.kv / kKv, measured.p99_ms / slo_ms_});
  set_level(now_s);
  std::erase_if(wants_, [&](const auto& want) { return !sessions.contains(want.first); });
  std::vector<Id> changed;
  const auto consider = [&](Id id, const Session& session) {
    const int have = wants_.try_emplace(id, layers_).first->second;
    if (have < session.can) {
      wants_[id] = session.can;  // what it cannot hold is no wish, and no move either
    } else if (wanted(session) != have) {
      changed.push_back(id);
    }
  };
  for (auto at = sessions.lower_bound(next_); at != sessions.end(); ++at)
    consider(at->first, at->second);
  for (auto at = sessions.begin(); at != sessions.lower_bound(next_); ++at)
    consider(at->first, at->second);
  const size_t most = std::max<size_t>(1, sessions.size() / kPartThatMoves);
  if (changed.size() > most) changed.resize(most);
  for (const Id id : changed) wants_[id] = wanted(sessions.at(id));
  if (!changed.empty()) next_ = changed.back() + 1;
}

std::optional<int> Shedding::want(Id session) const {
  const auto found = wants_.find(session);
  if (found == wants_.end() || found->second == layers_) return {};
  return found->second;
}

double Shedding::price() const { return std::clamp(pressure_ - kLow, 0.0, 1.0); }

void Shedding::set_level(double now_s) {
  if (pressure_ >= kLow) low_since_.reset();
  if (pressure_ > kHigh) level_ = std::min(1.0, level_ + kRise);
  if (pressure_ >= kLow) return;
  if (!low_since_) low_since_ = now_s;
  const double from = std::max(*low_since_ + kCalm, lowered_.value_or(*low_since_ + kCalm));
  if (now_s <= from) return;
  level_ = std::max(0.0, level_ - kFallASecond * (now_s - from));
  lowered_ = now_s;
}

int Shedding::wanted(const Session& session) const {
  const double part = std::min(1.0, level_ * weight(session.priority));
  const double cut = layers_ - part * (layers_ - session.can);
  return std::clamp(static_cast<int>(std::lround(cut)), session.can, layers_);
}

}  // namespace split::cloud
