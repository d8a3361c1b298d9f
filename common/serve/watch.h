// Beside an answer while it is made: notices that its client has gone away, whatever the answer
// waits for, and keeps a stream that has been quiet for long open with a comment. Knows no model.
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
  // Until it ends, `gone` is asked and, once it says true, `on_gone` called, on a thread of this
  // object's own. Throws std::system_error when there is no thread to be had.
  Watch(std::function<bool()> gone, std::function<void()> on_gone,
        std::chrono::milliseconds quiet = std::chrono::seconds(15));
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  bool gone() const { return gone_; }  // as of the last look, which is a moment ago

  // Names a stream's sink, before its first write; all that it gets then goes through tell(),
  // and comments are sent while it is quiet.
  void attach(http::Sink& sink);
  // False when the client is gone. Any thread.
  bool tell(const http::Events& events, std::string_view comment = {});
  void done();
  // The sink was full at the last write.
  bool full() const { return full_; }

 private:
  void look();

  const std::function<bool()> ask_;
  const std::function<void()> on_gone_;
  const std::chrono::milliseconds quiet_;

  std::atomic<bool> gone_{false}, full_{false};
  std::mutex mutex_;  // of:
  http::Sink* sink_ = nullptr;
  std::condition_variable end_;
  bool ended_ = false;
  Clock::time_point written_ = Clock::now();
  std::thread thread_;  // last
};

}  // namespace split::serve
