#include "edge_client/cloud/remote_pool.h"

#include "base/resources/threads.h"

namespace split::edge {
namespace {

constexpr size_t kMostIdle = 32;
constexpr size_t kMostEnded = 1024;  // a server forgets idle sessions by itself

}  // namespace

RemotePool::RemotePool(Connect connect, std::chrono::milliseconds timeout)
    : connect_(std::move(connect)),
      timeout_(timeout),
      goodbye_(connect_(std::min(timeout, Remote::kGoodbye))) {
  idle_.reserve(kMostIdle);
}

RemotePool::~RemotePool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<Remote> RemotePool::take() {
  std::unique_ptr<Remote> remote;
  {
    const std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      remote = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!remote) remote = connect_(timeout_);
  const auto back = [this](Remote* lent) { put(std::unique_ptr<Remote>(lent)); };
  return {remote.release(), back};
}

void RemotePool::put(std::unique_ptr<Remote> remote) noexcept {
  remote->set_trace({});
  remote->on_silence({});
  const std::lock_guard lock(mutex_);
  if (!remote->cancelled() && idle_.size() < kMostIdle) idle_.push_back(std::move(remote));
}

void RemotePool::dismiss(const std::string& session) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (ended_.size() >= kMostEnded) return;
    if (!thread_.joinable() && !try_start(thread_, [this] { say_goodbyes(); })) return;
    ended_.push_back(session);
  }
  changed_.notify_one();
}

void RemotePool::say_goodbyes() {
  Mutex::Lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !ended_.empty(); });
    if (ended_.empty()) return;
    const std::string session = std::move(ended_.front());
    ended_.pop_front();
    lock.unlock();
    bool heard = true;
    try {
      goodbye_->ask({Send::kClose, session}, {});
    } catch (const RemoteError& error) {
      heard = error.status != 0;
    } catch (const std::exception&) {
      heard = false;
    }
    lock.lock();
    if (!heard && stopping_) return;
  }
}

}  // namespace split::edge
