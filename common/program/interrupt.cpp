#include "program/interrupt.h"

namespace split {

void Interrupt::raise(int signal) {
  const std::lock_guard lock(mutex_);
  if (signal_ != 0) return;
  if (diverted_ && diverted_(signal)) return;
  signal_ = signal;
  raised_.notify_all();
  for (const auto& call : calls_) call();
}

int Interrupt::signal() const {
  const std::lock_guard lock(mutex_);
  return signal_;
}

bool Interrupt::wait(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !raised_.wait_for(lock, time, [&] { return signal_ != 0; });
}

Interrupt::Diversion::Diversion(Interrupt& interrupt, std::function<bool(int signal)> takes)
    : interrupt_(interrupt) {
  const std::lock_guard lock(interrupt.mutex_);
  CHECK(!interrupt.diverted_);
  interrupt.diverted_ = std::move(takes);
}

Interrupt::Diversion::~Diversion() {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.diverted_ = {};
}

Interrupt::Hook::Hook(Interrupt& interrupt, std::function<void()> call) : interrupt_(interrupt) {
  const std::lock_guard lock(interrupt_.mutex_);
  if (interrupt_.signal_ != 0) call();
  at_ = interrupt_.calls_.insert(interrupt_.calls_.end(), std::move(call));
}

Interrupt::Hook::~Hook() {
  const std::lock_guard lock(interrupt_.mutex_);
  interrupt_.calls_.erase(at_);
}

}  // namespace split
