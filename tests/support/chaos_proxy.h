// A TCP proxy that does to a connection what networks do: at a byte of a step's request or answer
// it cuts, resets, closes one way, swallows or flips; and it can be slow. Byte 0 is the request's
// first, or the answer's.
#pragma once

#include <netinet/tcp.h>
#include <poll.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "http_peer.h"

namespace split::test {

class ChaosProxy {
 public:
  // A request that begins so counts as a step.
  static constexpr std::string_view kStep = "POST /v1/sessions/";
  enum class Fault { kCut, kReset, kHalfClose, kSwallow, kFlip };
  enum class Way { kRequest, kAnswer };
  struct Plan {
    Fault fault;
    Way way;
    uint64_t at;    // bytes of it that pass before
    int step = 0;   // of those after plan(), counted over all connections
    int times = 1;  // on so many steps in a row
    std::string_view of = kStep;
    std::string_view holds = {};  // in the first bytes of one that counts
  };
  // Every piece of at most `piece` bytes waits for `delay` and a part of `jitter`.
  struct Pace {
    std::chrono::microseconds delay{0}, jitter{0};
    size_t piece = 1 << 14;
  };
  explicit ChaosProxy(int behind) : behind_(behind) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    CHECK(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    CHECK(::listen(listener_.get(), 64) == 0);
    CHECK(::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    port_ = ntohs(at.sin_port);
    accepting_ = std::thread([this] { accept(); });
  }
  ~ChaosProxy() {
    ending_ = true;
    accepting_.join();
    for (auto& line : lines_) line.thread.join();
  }

  std::string url() const { return cat("http://127.0.0.1:", port_); }
  void plan(const Plan& plan) {
    const std::lock_guard lock(mutex_);
    plan_ = plan;
    steps_ = struck_ = 0;
    request_bytes_ = answer_bytes_ = 0;
  }
  void pace(const Pace& pace) {
    const std::lock_guard lock(mutex_);
    pace_ = pace;
  }
  // All that has come from the callers, by connection.
  std::vector<std::string> asked() {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // How often the plan was carried out.
  int struck() const { return struck_; }
  // Bytes of the planned step that passed, which is all of them when it was not struck.
  uint64_t passed(Way way) const { return way == Way::kRequest ? request_bytes_ : answer_bytes_; }

 private:
  struct Line {
    std::thread thread;
    std::atomic<bool> done{false};
  };
  // The place of one connection: which message, and where in it.
  struct Place {
    bool asking = false;  // the last bytes went up
    std::optional<Plan> armed;
    uint64_t up = 0, down = 0;
    bool swallowing = false;
  };
  enum class Next { kGoOn, kEnd };

  void accept() {
    while (!ending_) {
      pollfd ready{listener_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 20) <= 0) continue;
      auto client =
          std::make_shared<Fd>(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!*client) continue;
      lines_.remove_if([](Line& line) {
        if (line.done) line.thread.join();
        return line.done.load();
      });
      Line& line = lines_.emplace_back();
      line.thread = std::thread([this, client, &line] {
        carry(*client);
        client->reset();
        line.done = true;
      });
    }
  }

  void carry(Fd& client) {
    Fd server(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(behind_));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(server.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) return;
    const int one = 1;
    for (const Fd* fd : {&client, &server})
      ::setsockopt(fd->get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    size_t own = 0;
    {
      const std::lock_guard lock(mutex_);
      own = asked_.size();
      asked_.emplace_back();
    }
    Place place;
    bool open[2] = {true, true};  // client to server, server to client
    while (!ending_ && (open[0] || open[1])) {
      pollfd ready[2] = {{open[0] ? client.get() : -1, POLLIN, 0},
                         {open[1] ? server.get() : -1, POLLIN, 0}};
      if (::poll(ready, 2, 20) <= 0) continue;
      for (const int way : {0, 1}) {
        if (!ready[way].revents) continue;
        Fd &from = way == 0 ? client : server, &into = way == 0 ? server : client;
        char buffer[1 << 14];
        const ssize_t n = ::recv(from.get(), buffer, pace().piece, 0);
        if (n <= 0) {
          open[way] = false;
          ::shutdown(into.get(), SHUT_WR);
          continue;
        }
        if (way == 0) {
          const std::lock_guard lock(mutex_);
          asked_[own].append(buffer, static_cast<size_t>(n));
        }
        if (pass(place, way == 0 ? Way::kRequest : Way::kAnswer, {buffer, static_cast<size_t>(n)},
                 from, into) == Next::kEnd)
          return;
      }
    }
  }

  Next pass(Place& place, Way way, std::string_view bytes, Fd& from, Fd& into) {
    if (way == Way::kRequest && !place.asking) begin(place, bytes);
    place.asking = way == Way::kRequest;
    if (place.swallowing) return Next::kGoOn;
    uint64_t& count = way == Way::kRequest ? place.up : place.down;
    std::string copy(bytes);
    if (place.armed) {
      (way == Way::kRequest ? request_bytes_ : answer_bytes_) = count + bytes.size();
      const Plan plan = *place.armed;
      if (plan.way == way && count + bytes.size() > plan.at) {
        const size_t before = plan.at - count;
        place.armed.reset();
        ++struck_;
        if (plan.fault == Fault::kFlip) {
          copy[before] = static_cast<char>(copy[before] ^ 1);
        } else {
          send(into, std::string_view(copy).substr(0, before));
          return strike(place, plan.fault, from, into);
        }
      }
    }
    count += bytes.size();
    send(into, copy);
    return Next::kGoOn;
  }

  void begin(Place& place, std::string_view bytes) {
    place.up = place.down = 0;
    place.armed.reset();
    const std::lock_guard lock(mutex_);
    if (!bytes.starts_with(plan_ ? plan_->of : kStep)) return;
    if (plan_ && bytes.find(plan_->holds) == bytes.npos) return;
    const int step = steps_++;
    if (plan_ && step >= plan_->step && step < plan_->step + plan_->times) place.armed = *plan_;
  }

  static Next strike(Place& place, Fault fault, Fd& from, Fd& into) {
    switch (fault) {
      case Fault::kReset: {
        const linger now{1, 0};
        for (const Fd* fd : {&from, &into})
          ::setsockopt(fd->get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
        return Next::kEnd;
      }
      case Fault::kHalfClose:
        ::shutdown(into.get(), SHUT_WR);
        ::shutdown(from.get(), SHUT_RD);
        return Next::kGoOn;
      case Fault::kSwallow:
        place.swallowing = true;
        return Next::kGoOn;
      default:
        return Next::kEnd;
    }
  }

  void send(const Fd& into, std::string_view bytes) {
    const Pace now = pace();
    if (now.delay.count() + now.jitter.count() > 0) {
      const std::lock_guard lock(mutex_);
      const auto wait = now.delay + std::chrono::microseconds(
                                        random_() % static_cast<unsigned>(now.jitter.count() + 1));
      std::this_thread::sleep_for(wait);  // this is the network
    }
    while (!bytes.empty()) {
      const ssize_t n = ::send(into.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
  }
  Pace pace() {
    const std::lock_guard lock(mutex_);
    return pace_;
  }

  const int behind_;
  Fd listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port_ = 0;
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::optional<Plan> plan_;
  Pace pace_;
  std::minstd_rand random_{1};
  int steps_ = 0;
  std::atomic<int> struck_{0};
  std::vector<std::string> asked_;
  std::atomic<uint64_t> request_bytes_{0}, answer_bytes_{0};
  std::list<Line> lines_;
  std::thread accepting_;
};

}  // namespace split::test
