#include "scripts/link/relay.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/bytes.h"
#include "base/error.h"

namespace split::link {
namespace {

constexpr size_t kMostConnections = 1024;
constexpr std::chrono::milliseconds kAcceptRetry{100};  // when descriptors have run out
// Bytes that stand in the system before they are on the line: as many as in a router's queue.
constexpr int kSystemHolds = 128 << 10;

// Nothing waits for more bytes, and little waits for the line.
void prepare(const Fd& fd) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kSystemHolds, sizeof kSystemHolds);
}

// Its other side sees a lost connection.
void reset(Fd& fd) {
  const linger now{1, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &now, sizeof now);
  fd.reset();
}

bool would_wait(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

Error failed(std::string_view what) {
  return {ErrorKind::kIo, cat("[link] ", what, ": ", errno_text(errno))};
}

int bound_port(const Fd& fd) {
  sockaddr_in at{};
  socklen_t size = sizeof at;
  if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&at), &size) != 0)
    throw failed("getsockname");
  return ntohs(at.sin_port);
}

Fd listen_here(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw failed("socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &kSystemHolds, sizeof kSystemHolds);  // inherited
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    throw Error(errno == EADDRINUSE ? ErrorKind::kInUse : ErrorKind::kIo,
                cat("[link] cannot listen on 127.0.0.1:", port, ": ", errno_text(errno)));
  }
  return fd;
}

}  // namespace

struct Relay::Address {
  sockaddr_storage at{};
  socklen_t size = 0;
};

// A client's connection and its own to the server.
struct Relay::Pair {
  Pair(Relay& relay, Fd from, Time now, uint64_t bytes)
      : client{std::move(from), true, false},
        opened(now + relay.options_.rtt),
        up(relay.up_, opened),
        down(relay.down_, now, relay.options_.events_per_s),
        left(bytes) {}
  End client, server;
  const Time opened;
  Flow up, down;
  uint64_t left;       // bytes until it is cut
  size_t address = 0;  // of the server's that is tried
  bool connecting = true;
  bool refused = false;  // by all addresses
  bool lost = false;     // by either side
};

Relay::Relay(const Options& options)
    : options_(options),
      up_(options.up),
      down_(options.down),
      random_(options.seed.value_or(0)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      buffer_(64 << 10) {
  if (!epoll_ || !stop_) throw failed("epoll");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int found = ::getaddrinfo(options.to_host.c_str(), std::to_string(options.to_port).c_str(),
                                  &hints, &list);
  if (found != 0) {
    throw Error(ErrorKind::kRemote,
                cat("[link] cannot find ", options.to_host, ": ", ::gai_strerror(found)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> free_list(list, ::freeaddrinfo);
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    Address& address = addresses_.emplace_back();
    address.size = at->ai_addrlen;
    std::memcpy(&address.at, at->ai_addr, at->ai_addrlen);
  }
  listener_ = listen_here(options.port);
  port_ = bound_port(listener_);
  watch(EPOLL_CTL_ADD, listener_.get(), EPOLLIN | EPOLLET);
  watch(EPOLL_CTL_ADD, stop_.get(), EPOLLIN);
}

Relay::~Relay() = default;

void Relay::watch(int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.get(), operation, fd, &event) != 0) throw failed("epoll_ctl");
}

void Relay::stop() {
  stopped_ = true;
  wake_reader(stop_);
}

void Relay::run() {
  while (!stopped_) {
    const Time now = Clock::now();
    if (accepts_ || now >= accept_again_) accept_all(now);
    const bool moved = round(now);
    wait(moved ? now : wake(now));
  }
  for (Pair& pair : pairs_) {
    reset(pair.client.fd);
    reset(pair.server.fd);
  }
  pairs_.clear();
  by_fd_.clear();
}

// --- Events

void Relay::wait(Time until) {
  // Finer than epoll_wait()'s milliseconds.
  pollfd ready{epoll_.get(), POLLIN, 0};
  const Time now = Clock::now();
  timespec time{};
  if (until != kNever && until > now) {
    const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(until - now).count();
    time.tv_sec = left / 1'000'000'000;
    time.tv_nsec = left % 1'000'000'000;
  }
  if (::ppoll(&ready, 1, until == kNever ? nullptr : &time, nullptr) < 0 && errno != EINTR)
    throw failed("ppoll");
  epoll_event events[64];
  const int count = ::epoll_wait(epoll_.get(), events, 64, 0);
  for (int i = 0; i < count; ++i) on_event(events[i].data.fd, events[i].events);
}

// Notes what happened and ends nothing, so that no descriptor of these events is another one yet.
void Relay::on_event(int fd, uint32_t events) {
  if (fd == listener_.get()) {
    accepts_ = true;
    return;
  }
  if (fd == server_watch_.get()) return on_watch();
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  Pair& pair = *found->second;
  const bool of_server = fd == pair.server.fd.get();
  if (of_server && pair.connecting) return connected(pair);
  if ((events & EPOLLERR) != 0) pair.lost = true;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0)
    (of_server ? pair.down : pair.up).offer(Clock::now());
  if ((events & EPOLLOUT) != 0) (of_server ? pair.server : pair.client).takes = true;
}

void Relay::accept_all(Time now) {
  accepts_ = false;
  accept_again_ = kNever;
  for (;;) {
    if (pairs_.size() >= kMostConnections) {
      accept_again_ = now + kAcceptRetry;
      return;
    }
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (!would_wait(errno)) accept_again_ = now + kAcceptRetry;
      return;
    }
    prepare(fd);
    ++counts_.connections;
    const uint64_t most = options_.cut_after == 0 ? UINT64_MAX : options_.cut_after;
    const uint64_t bytes = options_.seed && options_.cut_after > 0
                               ? std::uniform_int_distribution<uint64_t>(1, most)(random_)
                               : most;
    const int client = fd.get();
    Pair& pair = pairs_.emplace_back(*this, std::move(fd), now, bytes);
    by_fd_[client] = &pair;
    watch(EPOLL_CTL_ADD, client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    pair.server.fd = begin_connect(pair.address);
    pair.refused = !pair.server.fd;
    if (!pair.refused) by_fd_[pair.server.fd.get()] = &pair;
    if (options_.events_per_s > 0 && !server_watch_) open_watch();
  }
}

// The first of the server's addresses from `address` on that may take a connection. No descriptor
// when there is none.
Fd Relay::begin_connect(size_t& address) {
  for (; address < addresses_.size(); ++address) {
    const auto* const at = reinterpret_cast<const sockaddr*>(&addresses_[address].at);
    Fd fd(::socket(at->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) continue;
    prepare(fd);
    if (::connect(fd.get(), at, addresses_[address].size) != 0 && errno != EINPROGRESS) continue;
    watch(EPOLL_CTL_ADD, fd.get(), EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
    return fd;
  }
  return {};
}

void Relay::connected(Pair& pair) {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(pair.server.fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) {
    pair.connecting = false;
    pair.server.takes = true;
    pair.down.offer(Clock::now());
    return;
  }
  by_fd_.erase(pair.server.fd.get());
  ++pair.address;
  pair.server.fd = begin_connect(pair.address);
  pair.refused = !pair.server.fd;
  if (!pair.refused) by_fd_[pair.server.fd.get()] = &pair;
}

// --- The server's end

void Relay::open_watch() {
  size_t address = 0;
  server_watch_ = begin_connect(address);
  watch_opened_ = false;
}

// A server closes what is idle for long, too: it has ended when it takes no other connection.
void Relay::on_watch() {
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(server_watch_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  char byte = 0;
  const bool lost =
      error != 0 || ::recv(server_watch_.get(), &byte, 1, MSG_PEEK) >= 0 || !would_wait(errno);
  if (!lost) {
    watch_opened_ = true;
    return;
  }
  const bool had_opened = watch_opened_;
  server_watch_.reset();
  if (had_opened) open_watch();
  if (server_watch_) return;
  for (Pair& pair : pairs_) pair.lost = true;
}

// --- Bytes

bool Relay::round(Time now) {
  bool moved = false;
  Pairs served;  // comes last in the next round
  for (auto at = pairs_.begin(); at != pairs_.end();) {
    const auto here = at++;
    bool read_any = false, wrote_any = false;
    for (const Way way : {kUp, kDown}) {
      read_any |= read(*here, way, now);
      wrote_any |= write(*here, way, now);
    }
    moved = moved || read_any || wrote_any;
    const bool over = here->client.told && here->server.told;
    const bool refused = here->refused && now >= here->opened;
    if (over || refused || here->lost) {
      if (!over) {
        reset(here->client.fd);
        reset(here->server.fd);
      }
      end(here);
    } else if (read_any) {
      served.splice(served.end(), pairs_, here);
    }
  }
  pairs_.splice(pairs_.end(), served);
  return moved;
}

bool Relay::read(Pair& pair, Way way, Time now) {
  Flow& flow = way == kUp ? pair.up : pair.down;
  const End& from = way == kUp ? pair.client : pair.server;
  const size_t room = std::min(flow.room(now), buffer_.size());
  if (room == 0) return false;
  const ssize_t n = ::recv(from.fd.get(), buffer_.data(), room, 0);
  if (n > 0) {
    flow.push({buffer_.data(), static_cast<size_t>(n)});
  } else if (n == 0) {
    flow.end(now);
  } else if (would_wait(errno)) {
    flow.pause();
    return false;
  } else {
    pair.lost = true;
  }
  return true;
}

bool Relay::write(Pair& pair, Way way, Time now) {
  Flow& flow = way == kUp ? pair.up : pair.down;
  End& to = way == kUp ? pair.server : pair.client;
  bool moved = false;
  while (to.takes && !pair.lost) {
    const std::string_view bytes = flow.arrived(now).substr(0, pair.left);
    if (bytes.empty()) break;
    const ssize_t n = ::send(to.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0) {
      to.takes = false;
      pair.lost = !would_wait(errno);
      break;
    }
    const auto sent = static_cast<size_t>(n);
    flow.take(now, sent);
    pair.left -= sent;
    (way == kUp ? counts_.up : counts_.down) += sent;
    if (pair.left == 0) {
      pair.lost = true;
      ++counts_.cut;
    }
    moved = true;
  }
  if (to.takes && !to.told && !pair.lost && flow.over(now)) {
    ::shutdown(to.fd.get(), SHUT_WR);
    to.told = moved = true;
  }
  return moved;
}

void Relay::end(Pairs::iterator pair) {
  std::erase_if(by_fd_, [&](const auto& known) { return known.second == &*pair; });
  pairs_.erase(pair);
  if (accept_again_ != kNever) accepts_ = true;
}

Time Relay::wake(Time now) const {
  Time at = accept_again_;
  for (const Pair& pair : pairs_) {
    at = std::min({at, pair.up.wake(now), pair.down.wake(now)});
    if (pair.refused) at = std::min(at, pair.opened);
  }
  return at;
}

}  // namespace split::link
