#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "base/log.h"
#include "base/resources/threads.h"
#include "program/interrupt.h"

namespace split {

SignalWatch::SignalWatch(Interrupt& interrupt, std::chrono::seconds patience,
                         std::function<void()> hangup)
    : end_(expect_fd(::eventfd(0, EFD_CLOEXEC), "an event")) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  if (hangup) sigaddset(&set, SIGHUP);
  CHECK(::pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signals_ = expect_fd(::signalfd(-1, &set, SFD_CLOEXEC), "signals");
  thread_ = started([this, &interrupt, patience, hangup = std::move(hangup)] {
    pollfd fds[2] = {{signals_.get(), POLLIN, 0}, {end_.get(), POLLIN, 0}};
    using Clock = std::chrono::steady_clock;
    std::optional<Clock::time_point> end_by;
    for (;;) {
      const auto left = [&] {
        const auto time = std::chrono::ceil<std::chrono::milliseconds>(*end_by - Clock::now());
        return static_cast<int>(std::max<int64_t>(time.count(), 0));
      };
      const int count = ::poll(fds, 2, end_by ? left() : -1);
      if (count < 0) continue;
      if (count == 0) {
        log_warning("what is still at work is abandoned: its time to end is over");
        ::_exit(exit_code_of_signal(interrupt.signal()));
      }
      if (fds[1].revents != 0) return;
      signalfd_siginfo info{};
      if (::read(signals_.get(), &info, sizeof info) != sizeof info) continue;
      const auto signal = static_cast<int>(info.ssi_signo);
      if (signal == SIGHUP) {
        hangup();
        continue;
      }
      if (interrupt.signal() != 0) ::_exit(exit_code_of_signal(signal));
      interrupt.raise(signal);
      if (interrupt.signal() != 0) end_by = Clock::now() + patience + std::chrono::seconds(1);
    }
  });
}

SignalWatch::~SignalWatch() {
  wake_reader(end_);
  thread_.join();
}

int exit_code_of_signal(int signal) { return signal == SIGINT ? 130 : 0; }

}  // namespace split
