#include "serve/watch.h"

namespace split::serve {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // each look is one system call

}  // namespace

Watch::Watch(std::function<bool()> gone, std::function<void()> on_gone,
             std::chrono::milliseconds quiet)
    : ask_(std::move(gone)),
      on_gone_(std::move(on_gone)),
      quiet_(quiet),
      thread_([this] { look(); }) {}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  end_.notify_one();
  thread_.join();
}

void Watch::look() {
  std::unique_lock lock(mutex_);
  while (!end_.wait_for(lock, std::min(kLook, quiet_), [this] { return ended_; })) {
    if (ask_ && ask_()) {
      gone_ = true;
      lock.unlock();
      on_gone_();
      return;
    }
    if (sink_ == nullptr || Clock::now() - written_ < quiet_) continue;
    sink_->tell({}, "working");
    written_ = Clock::now();
  }
}

void Watch::attach(http::Sink& sink) {
  const std::lock_guard lock(mutex_);
  sink_ = &sink;
}

bool Watch::tell(const http::Events& events, std::string_view comment) {
  const std::lock_guard lock(mutex_);
  written_ = Clock::now();
  const bool taken = sink_->tell(events, comment);
  full_ = sink_->full();
  return taken;
}

void Watch::done() {
  const std::lock_guard lock(mutex_);
  sink_->done();
}

}  // namespace split::serve
