#include "http/server.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <set>
#include <unordered_map>

#include "base/log.h"
#include "http/connection.h"
#include "http/exchange.h"
#include "http/workers.h"

namespace split::http {
namespace {

constexpr std::chrono::milliseconds kDrainTime{1000};
constexpr std::chrono::milliseconds kAcceptPause{
    100};  // after the system ran out of descriptors or memory
constexpr size_t kDrainBytes = 64 << 20;
constexpr uint64_t kUnguardedBody = 64 << 10;  // received before anybody asks whose it is

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

// Everything but `finished` and the atomics belongs to the loop thread.
struct Server::Impl {
  explicit Impl(Options given)
      : options(std::move(given)),
        exchange(options, stopping),
        epoll(::epoll_create1(EPOLL_CLOEXEC)),
        wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        workers({.keep = options.idle_workers,
                 .most = options.max_inflight,
                 .queue = options.queue,
                 .stack_bytes = options.worker_stack_bytes}) {
    if (!epoll || !wake) throw Error(ErrorKind::kIo, cat("[http] epoll: ", errno_text(errno)));
    watch(EPOLL_CTL_ADD, wake.get(), EPOLLIN);
  }

  void watch(int operation, int fd, uint32_t events) {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (::epoll_ctl(epoll.get(), operation, fd, &event) != 0) {
      throw Error(ErrorKind::kIo, cat("[http] epoll_ctl: ", errno_text(errno)));
    }
  }
  void wake_loop() {
    const uint64_t one = 1;
    if (::write(wake.get(), &one, sizeof one) < 0) return;  // the counter is full, so it is awake
  }

  void run();
  void on_event(int fd);
  void accept_all();
  void admit(Fd fd, const sockaddr_storage& address);
  void read_more(Connection& c);
  void advance(Connection& c);
  bool charge(Connection& c, uint64_t bytes);  // of body; false: refused
  void hand_over(Connection& c);
  void refuse(Connection& c, const HttpError& error, bool with_body = true);
  void drain(Connection& c);
  void destroy(Connection& c);
  void take_finished();
  void on_timeout(Connection& c);
  void begin_stop();
  void arm(Connection& c) { watch(EPOLL_CTL_MOD, c.fd.get(), EPOLLIN | EPOLLRDHUP | EPOLLONESHOT); }
  void set_deadline(Connection& c, Clock::time_point deadline) {
    timers.erase({c.deadline, c.fd.get()});
    c.deadline = deadline;
    if (deadline != Clock::time_point::max()) timers.insert({deadline, c.fd.get()});
  }

  const Options options;
  std::atomic<bool> stopping{false};
  Exchange exchange;
  Fd listener;
  Fd epoll;
  Fd wake;
  std::unordered_map<int, std::unique_ptr<Connection>> connections;
  std::map<std::string, size_t> per_address;
  std::set<std::pair<Clock::time_point, int>> timers;
  uint64_t body_bytes = 0;  // of all requests being received or answered
  size_t draining = 0;
  bool stop_begun = false;
  Clock::time_point stop_deadline = Clock::time_point::max();
  Clock::time_point accept_again = Clock::time_point::max();

  std::atomic<size_t> open{0};
  std::atomic<size_t> inflight{0};
  std::mutex finished_mutex;
  std::vector<std::pair<Connection*, bool>> finished;  // and whether it can take another request
  Workers workers;                                     // last: its threads use what is above
};

void Server::Impl::run() {
  std::array<epoll_event, 256> events;
  for (;;) {
    if (stopping && !stop_begun) begin_stop();
    if (stop_begun && (connections.size() == draining || Clock::now() >= stop_deadline)) break;
    auto next = std::min(stop_deadline, accept_again);
    if (!timers.empty()) next = std::min(next, timers.begin()->first);
    int wait = -1;
    if (next != Clock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
      wait = static_cast<int>(std::clamp<int64_t>(left, 0, 60000));
    }
    const int n = ::epoll_wait(epoll.get(), events.data(), static_cast<int>(events.size()), wait);
    if (n < 0 && errno != EINTR)
      throw Error(ErrorKind::kIo, cat("[http] epoll_wait: ", errno_text(errno)));
    for (int i = 0; i < n; ++i) on_event(events[static_cast<size_t>(i)].data.fd);
    take_finished();
    const auto now = Clock::now();
    if (accept_again <= now) {
      accept_again = Clock::time_point::max();
      if (listener) watch(EPOLL_CTL_MOD, listener.get(), EPOLLIN);
    }
    while (!timers.empty() && timers.begin()->first <= now) {
      on_timeout(*connections.at(timers.begin()->second));
    }
  }
  // Late handlers find their client gone and their writes failing.
  for (const auto& [fd, c] : connections) {
    if (c->state == Connection::kBusy) ::shutdown(fd, SHUT_RDWR);
  }
  workers.close();
  connections.clear();
  timers.clear();
}

void Server::Impl::on_event(int fd) {
  if (fd == wake.get()) {
    uint64_t count = 0;
    while (::read(fd, &count, sizeof count) > 0) continue;
  } else if (listener && fd == listener.get()) {
    accept_all();
  } else if (const auto found = connections.find(fd); found != connections.end()) {
    // An event may be of a descriptor closed and reused in this round; reading is then merely
    // early.
    if (found->second->state != Connection::kBusy) read_more(*found->second);
  }
}

void Server::Impl::accept_all() {
  for (int i = 0; i < 256; ++i) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    Fd fd(::accept4(listener.get(), reinterpret_cast<sockaddr*>(&address), &size,
                    SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      admit(std::move(fd), address);
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      log_warning(cat("[http] cannot accept for now: ", errno_text(errno)));
      watch(EPOLL_CTL_MOD, listener.get(), 0);
      accept_again = Clock::now() + kAcceptPause;
      return;
    }
    // Anything else (ECONNABORTED, EPROTO, ...) is about that one connection.
  }
}

void Server::Impl::admit(Fd fd, const sockaddr_storage& address) {
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on,
               sizeof on);  // else 44 ms a request (measured)
  auto owned = std::make_unique<Connection>();
  Connection& c = *owned;
  c.fd = std::move(fd);
  c.peer = numeric_address(address);
  watch(EPOLL_CTL_ADD, c.fd.get(), EPOLLIN | EPOLLRDHUP | EPOLLONESHOT);
  const size_t from_there = ++per_address[c.peer];
  connections.emplace(c.fd.get(), std::move(owned));
  open = connections.size();
  if (connections.size() > options.max_connections || from_there > options.max_per_address) {
    refuse(c, {503, "too_many_connections", "too many connections", {}, {{"Retry-After", "1"}}});
    return;
  }
  set_deadline(c, Clock::now() + options.idle_timeout);
}

void Server::Impl::destroy(Connection& c) {
  set_deadline(c, Clock::time_point::max());
  body_bytes -= c.charged;
  if (c.state == Connection::kDrain) --draining;
  const auto address = per_address.find(c.peer);
  if (--address->second == 0) per_address.erase(address);
  connections.erase(c.fd.get());  // closes it, which also takes it out of the epoll set
  open = connections.size();
}

void Server::Impl::read_more(Connection& c) {
  if (c.state == Connection::kDrain) {
    std::string waste;
    const Io io = receive(c, waste, 64 << 10);
    c.drained += waste.size();
    if (io == Io::kGone || c.drained > kDrainBytes) return destroy(c);
    return arm(c);
  }
  // Never more than the request at hand can use: the rest waits in the kernel, and the client with
  // it.
  const size_t wanted = c.state == Connection::kBody ? c.head.content_length - c.in.size()
                                                     : options.max_head_bytes + 1 - c.in.size();
  const size_t before = c.in.size();
  if (receive(c, c.in, wanted) == Io::kGone) return destroy(c);
  if (c.state == Connection::kBody && !charge(c, c.in.size() - before)) return;
  advance(c);
}

bool Server::Impl::charge(Connection& c, uint64_t bytes) {
  c.charged += bytes;
  body_bytes += bytes;
  if (body_bytes <= options.max_body_bytes_total) return true;
  refuse(c, {503, "overloaded", "too many request bodies at once", {}, {{"Retry-After", "1"}}});
  return false;
}

void Server::Impl::advance(Connection& c) {
  if (c.state == Connection::kHead) {
    const size_t blank =
        c.in.find_first_not_of("\r\n");  // RFC 9112, section 2.2: blank lines before a request
    if (blank != 0 && !c.in.empty()) c.in.erase(0, blank);
    if (c.in.empty()) {
      c.in.shrink_to_fit();  // a parked connection keeps no buffer
      return arm(c);
    }
    if (c.scanned == 0) set_deadline(c, Clock::now() + options.head_timeout);
    const auto end = find_head_end(c.in, c.scanned);
    if (!end && c.in.size() <= options.max_head_bytes) return arm(c);
    if (!end || *end > options.max_head_bytes) {
      if (c.in.find('\n') == std::string::npos)
        return refuse(c, {414, "target_too_long", "the request line is too long"});
      return refuse(
          c, {431, "head_too_large", cat("the head is over ", options.max_head_bytes, " bytes")});
    }
    auto parsed = parse_request_head(std::string_view(c.in).substr(0, *end),
                                     {options.max_headers, options.max_body_bytes});
    if (const auto* error = std::get_if<HttpError>(&parsed)) return refuse(c, *error);
    c.head = std::move(std::get<RequestHead>(parsed));
    c.in.erase(0, *end);
    c.scanned = 0;
    c.state = Connection::kBody;
    if (c.head.content_length > kUnguardedBody) {
      if (const auto error = exchange.refusal(c.head)) return refuse(c, *error);
    }
    if (!charge(c, std::min<uint64_t>(c.in.size(), c.head.content_length))) return;
    set_deadline(c, Clock::now() + options.body_timeout);
    if (c.head.expects_continue && c.in.size() < c.head.content_length) {
      constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
      const iovec piece{const_cast<char*>(kContinue.data()), kContinue.size()};
      size_t sent = 0;
      if (send(c, {&piece, 1}, sent) != Io::kDone || sent != kContinue.size()) return destroy(c);
    }
  }
  if (c.in.size() < c.head.content_length) return arm(c);
  hand_over(c);
}

void Server::Impl::hand_over(Connection& c) {
  if (c.in.size() == c.head.content_length) {
    c.body = std::exchange(c.in, {});
  } else {
    c.body = c.in.substr(0, c.head.content_length);
    c.in.erase(0, c.head.content_length);
  }
  set_deadline(c, Clock::time_point::max());
  c.state = Connection::kBusy;
  ++inflight;
  const bool taken = workers.submit([this, &c] {
    bool keep = false;
    try {
      keep = exchange.answer(c);
    } catch (...) {  // out of memory while answering, or a stream's own exception
      log_error("[http] an answer failed");
    }
    {
      const std::lock_guard lock(finished_mutex);
      finished.emplace_back(&c, keep);
    }
    wake_loop();
  });
  if (!taken) {
    --inflight;
    c.state = Connection::kBody;
    refuse(c, {503, "overloaded", "too many requests at once", {}, {{"Retry-After", "1"}}},
           c.head.method != "HEAD");
  }
}

void Server::Impl::take_finished() {
  std::vector<std::pair<Connection*, bool>> done;
  {
    const std::lock_guard lock(finished_mutex);
    done.swap(finished);
  }
  for (const auto& [c, keep] : done) {
    --inflight;
    body_bytes -= std::exchange(c->charged, 0);
    c->head = {};
    c->state = Connection::kHead;
    if (!keep || stop_begun) {
      drain(*c);
      continue;
    }
    set_deadline(*c, Clock::now() + options.idle_timeout);
    advance(*c);
  }
}

// Answers from the loop and ends the connection. The answer fits a fresh socket's buffer; a client
// whose buffer is full is not reading and gets none.
void Server::Impl::refuse(Connection& c, const HttpError& error, bool with_body) {
  const std::string answer =
      closing_answer(exchange.render(error), request_id(c.head.headers), with_body);
  const iovec piece{const_cast<char*>(answer.data()), answer.size()};
  size_t sent = 0;
  send(c, {&piece, 1}, sent);
  drain(c);
}

void Server::Impl::drain(Connection& c) {
  body_bytes -= std::exchange(c.charged, 0);
  c.in = {};
  c.body = {};
  c.state = Connection::kDrain;
  ++draining;
  ::shutdown(c.fd.get(), SHUT_WR);
  set_deadline(c, Clock::now() + kDrainTime);
  arm(c);
}

void Server::Impl::on_timeout(Connection& c) {
  const bool partial =
      c.state == Connection::kBody || (c.state == Connection::kHead && !c.in.empty());
  if (!partial) return destroy(c);
  refuse(c, {408, "request_timeout", "the request did not arrive in time"});
}

void Server::Impl::begin_stop() {
  stop_begun = true;
  stop_deadline = Clock::now() + options.shutdown_timeout;
  accept_again = Clock::time_point::max();
  listener.reset();
  std::vector<Connection*> idle;
  for (const auto& [fd, c] : connections) {
    if (c->state == Connection::kHead && c->in.empty()) idle.push_back(c.get());
  }
  for (Connection* c : idle) destroy(*c);
}

Server::Server(Options options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() = default;

void Server::route(std::string method, std::string_view pattern, Handler handler, Access access) {
  impl_->exchange.add_route({std::move(method), std::string(pattern), split_pattern(pattern),
                             std::move(handler), access});
}

void Server::set_guard(Guard guard) { impl_->exchange.set_guard(std::move(guard)); }

void Server::add_observer(Observer observer) { impl_->exchange.add_observer(std::move(observer)); }

void Server::set_error_renderer(ErrorRenderer renderer) {
  impl_->exchange.set_error_renderer(std::move(renderer));
}

int Server::bind() {
  int port = 0;
  impl_->listener =
      listen_on(impl_->options.host, impl_->options.port, impl_->options.listen_backlog, port);
  impl_->watch(EPOLL_CTL_ADD, impl_->listener.get(), EPOLLIN);
  return port;
}

void Server::run() {
  CHECK(impl_->listener || impl_->stopping);
  self_test();
  impl_->run();
}

void Server::stop() {
  impl_->stopping = true;
  impl_->wake_loop();
}

Server::Stats Server::stats() const {
  return {impl_->open, impl_->workers.threads(), impl_->inflight};
}

void Server::self_test() { Exchange::self_test(); }

}  // namespace split::http
