#include "http/server/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/log.h"
#include "base/system/thread_time.h"
#include "http/server/server_loop.h"

namespace split::http {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{
    100};  // after the system ran out of descriptors or memory
constexpr int kUnsentBytes = 256 << 10;
constexpr size_t kMostLooks = 64;  // attempts to find an idle connection
// Most in one round, which then takes some milliseconds.
constexpr int kMostAccepts = 64, kMostTimeouts = 256;
constexpr rlim_t kKeptDescriptors = 16;  // free for handlers, however many connections there are

// Logs where there may be no memory for a message.
template <typename Say>
void quietly(const Say& say) noexcept {
  try {
    say();
  } catch (const std::bad_alloc&) {
  }
}

std::vector<Network> networks_of(const std::vector<std::string>& texts) {
  std::vector<Network> networks;
  for (const std::string& text : texts) networks.push_back(Network::parse(text));
  return networks;
}

std::string numeric_address(const sockaddr_storage& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* raw =
      address.ss_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr)
          : &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  ::inet_ntop(address.ss_family, raw, text.data(), text.size());
  return text.data();
}

}  // namespace

Server::Impl::Impl(Options given)
    : options(std::move(given)),
      proxies(networks_of(options.trusted_proxies)),
      exchange(options, proxies, stopping),
      certificates(options),
      epoll(::epoll_create1(EPOLL_CLOEXEC)),
      wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      workers({.keep = options.idle_workers,
               .most = options.max_inflight,
               .queue = options.max_inflight + options.queue,
               .stack_bytes = options.worker_stack_bytes}) {
  if (!epoll || !wake) throw Error(ErrorKind::kIo, cat("[http] epoll: ", errno_text(errno)));
  watch(EPOLL_CTL_ADD, wake.get(), EPOLLIN);
}

void Certificates::renew() {
  if (options_.tls_cert_file.empty()) return;
  TlsContext next = tls_server_context(options_.tls_cert_file, options_.tls_key_file);
  const std::lock_guard lock(mutex_);
  next_ = std::move(next);
}

const TlsContext& Certificates::newest() {
  const std::lock_guard lock(mutex_);
  if (next_) used_ = std::move(next_);
  return used_;
}

void Deadlines::set(Connection& c, Clock::time_point deadline) {
  const Due before{c.deadline, c.fd.get()}, now{deadline, c.fd.get()};
  const bool at_all = deadline != Clock::time_point::max();
  const bool asks_nothing = c.state == Connection::kHead && c.in.empty();
  for (std::set<Due>* const one : {&all, &handshakes, &everybody.idle, &everybody.drains}) {
    one->erase(before);
  }
  if (c.address != nullptr) {
    c.address->idle.erase(before);
    c.address->drains.erase(before);
  }
  c.deadline = deadline;  // first: the rest may find no memory
  if (!at_all) return;
  all.insert(now);
  if (c.state == Connection::kHandshake) handshakes.insert(now);
  for (Address* const one : {&everybody, c.address}) {
    if (one == nullptr) continue;
    if (c.state == Connection::kDrain) one->drains.insert(now);
    if (asks_nothing) one->idle.insert(now);
  }
}

void Reports::add(Connection& c) {
  const std::lock_guard lock(mutex_);
  c.next_report = std::exchange(first_, &c);
}

Connection* Reports::take() {
  const std::lock_guard lock(mutex_);
  return std::exchange(first_, nullptr);
}

void Server::Impl::watch(int operation, int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (::epoll_ctl(epoll.get(), operation, fd, &event) != 0) {
    throw Error(ErrorKind::kIo, cat("[http] epoll_ctl: ", errno_text(errno)));
  }
}

void Server::Impl::run() {
  std::array<epoll_event, 256> events;
  for (;;) {
    if (stopping && !stop_begun()) begin_stop();
    if (stop_begun() && (!has_work() || Clock::now() >= stop_deadline)) break;
    auto next = std::min(stop_deadline, door.again);
    if (!deadlines.all.empty()) next = std::min(next, deadlines.all.begin()->first);
    int wait = -1;
    if (!ready.pending.empty() || !ready.asked.empty() || !ready.turns.empty()) next = Clock::now();
    if (next != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
      wait = static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
    }
    const int n = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), wait);
    if (n < 0 && errno != EINTR)
      throw Error(ErrorKind::kIo, cat("[http] epoll_wait: ", errno_text(errno)));
    const auto began = Clock::now();
    const auto worked = thread_time();
    for (int i = 0; i < n; ++i) on_event(events[static_cast<size_t>(i)].data.fd);
    for (const int fd : std::exchange(ready.pending, {})) on_event(fd);
    take_reports();
    for (const int fd : std::exchange(ready.asked, {})) {
      const auto found = connections.find(fd);
      if (found == connections.end() || found->second->state != Connection::kHead) continue;
      guarded(fd, [&] { advance(*found->second); });
    }
    take_turns();
    on_time(Clock::now());
    trim();
    counts.turn_work.store(std::max<Clock::duration>(counts.turn_work, thread_time() - worked));
    counts.turn.store(std::max<Clock::duration>(counts.turn, Clock::now() - began));
  }
  door.listener.reset();
  // Late handlers find their client gone and their writes failing.
  for (const auto& [fd, c] : connections) {
    if (c->state == Connection::kBusy) ::shutdown(fd, SHUT_RDWR);
  }
  workers.close();
  connections.clear();
  deadlines.all.clear();
}

void Server::Impl::on_event(int fd) {
  if (fd == wake.get()) {
    uint64_t count = 0;
    while (::read(fd, &count, sizeof count) > 0) continue;
  } else if (door.listener && fd == door.listener.get()) {
    accept_all();
  } else if (const auto found = connections.find(fd); found != connections.end()) {
    // The event may be of a descriptor closed and reused in this round; reading is then merely
    // early.
    guarded(fd, [&] { on_event(*found->second); });
  }
}

void Server::Impl::on_event(Connection& c) {
  switch (c.state) {
    case Connection::kHandshake:
      return shake_hands(c);
    case Connection::kHead:
      return read_more(c);
    case Connection::kBody:
    case Connection::kDrain:
    case Connection::kWriting:
      return ready.turns.push_back(c.fd.get());
    case Connection::kBusy:
    case Connection::kWaiting:
      return;
  }
}

void Server::Impl::on_time(Clock::time_point now) {
  if (door.again <= now) {
    door.again = Clock::time_point::max();
    if (door.listener) watch(EPOLL_CTL_MOD, door.listener.get(), EPOLLIN);
  }
  for (int i = 0;
       i < kMostTimeouts && !deadlines.all.empty() && deadlines.all.begin()->first <= now; ++i) {
    const int fd = deadlines.all.begin()->second;
    guarded(fd, [&] { on_timeout(*connections.at(fd)); });
  }
}

void Server::Impl::lose(int fd, const char* why) {
  quietly([&] { log_error(cat("[http] a connection was given up: ", why)); });
  const auto found = connections.find(fd);
  if (found != connections.end()) destroy(*found->second);
}

void Server::Impl::shake_hands(Connection& c) {
  const Io io = handshake(c);
  if (io == Io::kWait) return arm(c);
  if (io == Io::kDone) {
    c.state = Connection::kHead;
    c.waits_for = POLLIN;
    set_deadline(c, Clock::now() + options.idle_timeout);
    return arm(c);
  }
  if (!tls_was_plain_http()) return destroy(c);
  c.tls.reset();
  refuse(c, {400, "tls_expected", "this port speaks TLS: ask it by https://"});
}

void Server::Impl::accept_all() {
  for (int i = 0; i < kMostAccepts; ++i) {
    pollfd somebody{door.listener.get(), POLLIN, 0};
    if (::poll(&somebody, 1, 0) == 0) {
      door.all_in = true;
      return;
    }
    if (!has_descriptor()) return accept_later(EMFILE);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Fd fd(::accept4(door.listener.get(), reinterpret_cast<sockaddr*>(&address), &size,
                    SOCK_CLOEXEC | SOCK_NONBLOCK));
    const int error = fd ? 0 : errno, number = fd.get();
    if (fd) guarded(number, [&] { admit(std::move(fd), address); });
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
      return accept_later(error);
    }
    // Other errors (ECONNABORTED, EPROTO, ...) concern that connection alone.
  }
}

// Whether a descriptor is free for a connection, beside the reserve: the lowest free number tells
// how many are left. Idle connections make room.
bool Server::Impl::has_descriptor() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  const rlim_t most = limit.rlim_cur - std::min(kKeptDescriptors, limit.rlim_cur / 4);
  do {
    const Fd lowest(::fcntl(wake.get(), F_DUPFD_CLOEXEC, 0));
    if (lowest && static_cast<rlim_t>(lowest.get()) < most) return true;
  } while (end_oldest(deadlines.everybody.drains) || end_longest_idle(deadlines.everybody.idle));
  return false;
}

void Server::Impl::accept_later(int error) {
  if (std::exchange(door.all_in, false)) {
    quietly([&] { log_warning(cat("[http] cannot accept for now: ", errno_text(error))); });
  }
  watch(EPOLL_CTL_MOD, door.listener.get(), 0);
  door.again = Clock::now() + kAcceptPause;
}

void Server::Impl::admit(Fd fd, const sockaddr_storage& address) {
  const int on = 1;
  // Saves 44 ms a request (measured).
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // Unsent bytes wait with their answer, not a second time in the system's memory.
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytes, sizeof kUnsentBytes);
  auto owned = std::make_unique<Connection>();
  Connection& c = *owned;
  c.fd = std::move(fd);
  c.peer = numeric_address(address);
  c.late = stop_begun();
  connections.emplace(c.fd.get(), std::move(owned));
  counts.open = connections.size();
  ++deadlines.everybody.count;
  welcome(c);
}

// Idle connections make room: first of the same address, at no other's cost.
void Server::Impl::welcome(Connection& c) {
  watch(EPOLL_CTL_ADD, c.fd.get(), EPOLLIN | EPOLLRDHUP | EPOLLONESHOT);
  if (!any_contains(proxies, c.peer)) {
    c.address = &deadlines.addresses[c.peer];
    ++c.address->count;
  }
  bool room = true;
  while (room && c.address != nullptr && c.address->count > options.max_per_address) {
    room = end_longest_idle(c.address->idle);
  }
  const Address& all = deadlines.everybody;
  if (room && all.count > options.max_connections - options.max_connections / 10) {
    end_longest_idle(all.idle);
  }
  while (room && all.count > options.max_connections) room = end_longest_idle(all.idle);
  const TlsContext& tls = certificates.newest();
  if (!room) {
    if (tls) return destroy(c);  // a handshake to report it would be one more connection
    return refuse(
        c, {503, "too_many_connections", "too many connections", {}, {{"Retry-After", "1"}}});
  }
  if (tls) {
    c.tls = tls_accept(tls, c.fd.get());
    c.state = Connection::kHandshake;
  }
  set_deadline(c, Clock::now() + (tls ? options.head_timeout : options.idle_timeout));
  if (deadlines.handshakes.size() > options.max_handshakes) end_oldest(deadlines.handshakes);
}

// Ends the connection that has been idle longest since its accept or last answer, without unread
// bytes.
bool Server::Impl::end_longest_idle(const std::set<Due>& of) {
  const auto since = Clock::now() + options.idle_timeout - options.least_idle;
  size_t looked = 0;
  for (const Due& due : of) {
    if (due.first > since) break;
    Connection& c = *connections.at(due.second);
    if (!has_input(c)) {
      destroy(c);
      return true;
    }
    if (++looked == kMostLooks) break;
  }
  return false;
}

bool Server::Impl::end_oldest(const std::set<Due>& of) {
  if (of.empty()) return false;
  destroy(*connections.at(of.begin()->second));
  return true;
}

// Whether requests from before the stop are in flight or arriving.
bool Server::Impl::has_work() const {
  return std::ranges::any_of(connections, [](const auto& entry) {
    const Connection& c = *entry.second;
    if (c.state == Connection::kBusy || c.state == Connection::kWriting ||
        c.state == Connection::kWaiting) {
      return true;
    }
    const bool arriving = c.state == Connection::kBody || !c.in.empty();
    return arriving && !c.late && c.state != Connection::kDrain;
  });
}

// Refuses new connections until the others have their answers.
void Server::Impl::begin_stop() {
  stop_deadline = Clock::now() + options.shutdown_timeout;
  for (auto at = connections.begin(); at != connections.end();) {
    Connection& c = *(at++)->second;
    const bool nothing_asked = c.state == Connection::kHead && c.in.empty();
    if (nothing_asked || c.state == Connection::kHandshake) destroy(c);
  }
}

Server::Server(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() = default;

Router& Server::router() { return impl_->exchange.router(); }

void Server::route(std::string method, std::string path, Handler handler, Access access) {
  route({.method = std::move(method),
         .path = std::move(path),
         .access = access,
         .handler = std::move(handler)});
}

void Server::on_refused(RefusalObserver observer) {
  impl_->exchange.on_refused(std::move(observer));
}

int Server::bind() {
  int port = 0;
  impl_->door.listener =
      listen_on(impl_->options.host, impl_->options.port, impl_->options.listen_backlog, port);
  impl_->watch(EPOLL_CTL_ADD, impl_->door.listener.get(), EPOLLIN);
  return port;
}

void Server::run() {
  CHECK(impl_->door.listener || impl_->stopping);
  impl_->run();
}

void Server::stop() {
  impl_->stopping = true;
  wake_reader(impl_->wake);
}

void Server::renew_tls() { impl_->certificates.renew(); }

Server::Stats Server::stats() const {
  return {impl_->counts.open, impl_->workers.threads(), impl_->counts.inflight, impl_->counts.turn,
          impl_->counts.turn_work};
}

}  // namespace split::http
