#include "edge_client/server/health_check.h"

#include "base/resources/clock.h"

namespace split::edge {
namespace {

// How long a look stays valid.
constexpr std::chrono::milliseconds kLookAgain{1000};

}  // namespace

void HealthCheck::heard(bool answer) {
  const std::lock_guard lock(lost_mutex_);
  if (answer) {
    lost_since_.reset();
  } else if (!lost_since_) {
    lost_since_ = Clock::now();
  }
}

// Seconds, with three decimals.
std::optional<double> HealthCheck::lost_s() {
  const std::lock_guard lock(lost_mutex_);
  if (!lost_since_) return std::nullopt;
  const auto since = Clock::now() - *lost_since_;
  constexpr double kThousandths = 1e3;
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count()) /
         kThousandths;
}

HealthCheck::Seen HealthCheck::look(const std::string& model) {
  const std::lock_guard lock(mutex_);
  const auto now_seen = [this] {
    Seen seen = seen_;
    seen.lost_s = lost_s();
    seen.reachable = !seen.lost_s;  // others may have asked since
    return seen;
  };
  if (Clock::now() < looked_ + kLookAgain) return now_seen();
  seen_.reachable = false;
  seen_.stage_ms.clear();
  try {
    seen_.models.clear();
    for (const wire::ListedModel& listed : remote_->models()) seen_.models.push_back(listed.id);
    seen_.reachable = true;
    if (!model.empty()) seen_.stage_ms = remote_->stage_times(model);
  } catch (const RemoteError& error) {
    seen_.reachable = error.status != 0;
  }
  heard(seen_.reachable);
  looked_ = Clock::now();
  return now_seen();
}

}  // namespace split::edge
