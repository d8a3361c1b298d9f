#include "edge_client/server/cloud_notice.h"

#include <algorithm>

#include "base/resources/threads.h"
#include "program/terminal.h"
#include "wire/codes.h"

namespace split::edge {
namespace {

constexpr std::chrono::milliseconds kUntold{300};
// A first silence: a missing server is an error before that (weights/model_choice.h).
constexpr std::chrono::milliseconds kFirstUntold{4000};
// Interval of the lines, shorter where they replace each other.
constexpr std::chrono::seconds kAtTerminal{1}, kElsewhere{10};

}  // namespace

CloudNotice::CloudNotice(const Console& console, std::string url, bool quiet)
    : console_(console), url_(std::move(url)), quiet_(quiet) {}

CloudNotice::~CloudNotice() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void CloudNotice::lost(const RemoteError& error) {
  const std::lock_guard lock(mutex_);
  const bool busy = error.status == 429 || error.status == 503;
  why_ = error.code == wire::codes::kLoading ? ", which loads its models"
         : busy                              ? ", which is busy"
                                             : "";
  const auto untold = error.code == kFirstAsk ? kFirstUntold : kUntold;
  untold_ = waiting_ > 0 ? std::min(untold_, untold) : untold;
  changed_.notify_all();
  if (waiting_++ > 0) return;
  since_ = Clock::now();
  shown_ = false;
  if (quiet_) return;
  if (!thread_.joinable())
    try_start(thread_, [this] { run(); });  // without a thread, nothing is
                                            // printed
}

void CloudNotice::found(bool again) {
  const std::lock_guard lock(mutex_);
  CHECK(waiting_ > 0);
  if (--waiting_ > 0) return;
  waited_ += lasted();
  if (quiet_) return;
  changed_.notify_all();
  if (!std::exchange(shown_, false)) return;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - since_);
  const std::string line = again ? cat("the cloud answers, after ", seconds.count(), " s") : "";
  if (console_.err_is_terminal) {
    console_.err(cat("\r", line, "\x1b[K", again ? "\n" : ""));
  } else if (again) {
    console_.err(line + "\n");
  }
}

double CloudNotice::waited_ms() const {
  const std::lock_guard lock(mutex_);
  const auto now = waiting_ > 0 ? lasted() : Clock::duration{};
  return std::chrono::duration<double, std::milli>(waited_ + now).count();
}

// Call with the lock held.
Clock::duration CloudNotice::lasted() const {
  const auto time = Clock::now() - since_;
  return time < untold_ ? Clock::duration{} : time;
}

void CloudNotice::end() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(shown_, false) && console_.err_is_terminal) console_.err("\r\x1b[K");
  quiet_ = true;
  changed_.notify_all();
}

// Call with the lock held.
void CloudNotice::say(Clock::time_point now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - since_).count();
  const std::string line = cat("waiting for the cloud at ", url_, why_,
                               seconds > 0 ? cat(", ", seconds, " s") : "", " (Ctrl-C stops)");
  if (!console_.err_is_terminal) {
    console_.err(line + "\n");
  } else {
    const bool below = !shown_ && mid_line_.exchange(false);
    console_.err(
        cat(below ? "\n\r" : "\r", marked(console_.colors, Mark::kYellow, line), "\x1b[K"));
  }
  shown_ = true;
}

void CloudNotice::run() {
  Mutex::Lock lock(mutex_);
  while (!stopping_) {
    if (waiting_ == 0 || quiet_) {
      changed_.wait(lock, [this] { return stopping_ || (waiting_ > 0 && !quiet_); });
      continue;
    }
    const auto began = since_;
    const auto untold = untold_;
    const auto step = console_.err_is_terminal ? kAtTerminal : kElsewhere;
    const auto now = Clock::now();
    // Whole intervals after the beginning, with the first one sooner.
    const auto due = shown_ ? began + step * ((now - began) / step + 1) : began + untold;
    const bool other = changed_.wait_until(lock, due, [&] {
      return stopping_ || quiet_ || waiting_ == 0 || since_ != began || untold_ != untold;
    });
    if (!other) say(Clock::now());
  }
}

}  // namespace split::edge
