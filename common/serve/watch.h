// Watches an answer while it is made: notices that its client has gone away, whatever the answer
// waits for, and keeps a quiet stream open with a comment. Knows no model.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/resources/clock.h"
#include "http/message.h"

namespace split::serve {

class Watch {
 public:
  // Calls `gone` repeatedly and, once it is true, `on_gone`, on a thread of its own, until
  // destroyed. Throws std::system_error if no thread is free.
  Watch(std::function<bool()> gone, std::function<void()> on_gone,
        std::chrono::milliseconds quiet = std::chrono::seconds(15));
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool gone() const { return gone_; }  // by the last look, a moment ago

  // Sets a stream's sink, before its first write; all output then goes through tell(), and
  // comments are sent while it is quiet.
  void attach(http::Sink& sink);
  // Writes events. Returns false when the client has gone. Any thread.
  bool tell(const http::Events& events, std::string_view comment = {});
  void done();
  // Whether the sink was full at the last write.
  bool full() const { return full_; }

 private:
  void look();

  const std::function<bool()> ask_;
  const std::function<void()> on_gone_;
  const std::chrono::milliseconds quiet_;

  std::atomic<bool> gone_{false}, full_{false};
  std::mutex mutex_;  // guards:
  http::Sink* sink_ = nullptr;
  std::condition_variable end_;
  bool ended_ = false;
  Clock::time_point written_ = Clock::now();
  std::thread thread_;  // last: joins first
};

}  // namespace split::serve
