// Beside an answer while it is made: notices that its client has gone away, whatever the answer
// waits for, and keeps a stream that has been quiet for long open with a comment. Knows no model.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "http/message.h"

namespace split::serve {

class Watch {
 public:
  // Until it ends, `gone` is asked and, once it says true, `on_gone` called, on a thread of this
  // object's own. With a sink, all that is written goes through write().
  Watch(std::function<bool()> gone, std::function<void()> on_gone, http::Sink* sink = nullptr,
        std::chrono::milliseconds quiet = std::chrono::seconds(15));
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool gone() const { return gone_; }  // as of the last look, which is a moment ago
  // False when the client is gone.
  bool write(std::string_view bytes);

 private:
  using Clock = std::chrono::steady_clock;
  void look();

  const std::function<bool()> ask_;
  const std::function<void()> on_gone_;
  http::Sink* const sink_;
  const std::chrono::milliseconds quiet_;

  std::atomic<bool> gone_{false};
  std::mutex mutex_;  // of the sink, and of:
  std::condition_variable end_;
  bool ended_ = false;
  Clock::time_point written_ = Clock::now();
  std::thread thread_;  // last
};

}  // namespace split::serve
