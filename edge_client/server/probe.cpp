#include "edge_client/server/probe.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

// How long a look is good.
constexpr std::chrono::milliseconds kLookAgain{1000};

}  // namespace

Probe::Seen Probe::look(const std::string& model) {
  const std::lock_guard lock(mutex_);
  if (Clock::now() < looked_ + kLookAgain) return seen_;
  seen_.reachable = false;
  seen_.stage_ms.clear();
  try {
    seen_.models = remote_->models();
    seen_.reachable = true;
    if (!model.empty()) seen_.stage_ms = remote_->stage_times(model);
  } catch (const RemoteError& error) {
    seen_.reachable = error.status != 0;
  }
  looked_ = Clock::now();
  return seen_;
}

}  // namespace split::edge
