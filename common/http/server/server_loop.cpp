// One request in the loop: collected, checked, handed over, ended.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/release.h"
#include "base/resources/granted.h"
#include "http/server/server_loop.h"

namespace split::http {
namespace {

constexpr std::chrono::milliseconds kDrainTime{1000};
constexpr std::chrono::milliseconds kRetry{100};  // retries work that no worker could take
// Approximate: 0.1 ms of copying, and with new memory up to 1 ms in a virtual machine. A thread
// that works longer may be preempted in the middle.
constexpr uint64_t kRoundBytes = 128 << 10;
constexpr size_t kDrainBytes = 64 << 20;
constexpr size_t kDrainsPart = 8;  // fraction of the connections' limits that may drain beside them
constexpr uint64_t kUnguardedBody = 64 << 10;  // received before the guard is asked
// How long a worker waits for the next request of a client whose last one came at once. An edge is
// back when it has computed its own part of a token.
constexpr std::chrono::milliseconds kStay{10};

// Avoids large pages, which take all of their memory at the first byte.
void take_small_pages(std::string& text) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<uintptr_t>(text.data()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(text.data()) + text.capacity()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): madvise takes whole pages
  ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_NOHUGEPAGE);
}

// "api" of "POST /api/chat HTTP/1.1".
std::string first_segment(std::string_view head) {
  head = head.substr(0, head.find('\n'));
  const size_t path = head.find(" /");
  if (path == head.npos) return {};
  head.remove_prefix(path + 2);
  return std::string(head.substr(0, head.find_first_of("/? \r")));
}

}  // namespace

void Server::Impl::arm(Connection& c) {
  if (has_pending(c)) {
    ready.pending.push_back(c.fd.get());
    return;
  }
  const uint32_t event = c.waits_for == POLLOUT ? EPOLLOUT : EPOLLIN;
  watch(EPOLL_CTL_MOD, c.fd.get(), event | EPOLLRDHUP | EPOLLONESHOT);
}

void Server::Impl::uncount(Connection& c) {
  --deadlines.everybody.count;
  if (c.address != nullptr) --c.address->count;
}

void Server::Impl::destroy(Connection& c) {
  set_deadline(c, Clock::time_point::max());
  if (c.state != Connection::kDrain) uncount(c);
  if (c.address != nullptr && c.address->count == 0 && c.address->drains.empty()) {
    deadlines.addresses.erase(c.peer);
  }
  dispose({std::move(c.memory), std::move(c.in), std::move(c.body)});
  connections.erase(c.fd.get());  // closes it, which also takes it out of the epoll set
  if (door.again != Clock::time_point::max()) door.again = {};  // its descriptor is free
  counts.open = connections.size();
}

void Server::Impl::read_more(Connection& c) {
  if (c.state == Connection::kDrain) {
    std::string waste;
    const Io io = receive(c, waste, 64 << 10);
    c.drained += waste.size();
    ready.moved += waste.size();
    if (io == Io::kGone || c.drained > kDrainBytes) return destroy(c);
    return arm(c);
  }
  // Reads at most what the present request can use: the rest waits in the kernel, and the client
  // with it.
  const size_t wanted = c.state == Connection::kBody ? c.head.content_length - c.in.size()
                                                     : options.max_head_bytes + 1 - c.in.size();
  const size_t before = c.in.size();
  if (receive(c, c.in, wanted) == Io::kGone) return destroy(c);
  ready.moved += c.in.size() - before;
  if (c.state == Connection::kBody && !charge(c)) return;
  advance(c);
}

bool Server::Impl::charge(Connection& c) {
  if (!c.memory) c.memory = std::make_shared<MemoryShare>(options.memory);
  const uint64_t bytes = std::min<uint64_t>(c.in.size(), c.head.content_length);
  if (c.memory->try_take(bytes - c.memory->bytes())) {
    if (bytes <= kSmallBody || c.in.capacity() >= c.head.content_length) return true;
    // Room for the whole body, which then never moves.
    c.in.reserve(std::max<size_t>(c.head.content_length, kOwnMapping));
    take_small_pages(c.in);
    return true;
  }
  refuse(c, {503, "overloaded", "too many request bodies at once", {}, {{"Retry-After", "1"}}});
  return false;
}

void Server::Impl::advance(Connection& c) {
  if (c.state == Connection::kHead) {
    // RFC 9112, section 2.2: blank lines before a request.
    const size_t blank = c.in.find_first_not_of("\r\n");
    if (blank != 0 && !c.in.empty()) c.in.erase(0, blank);
    if (c.in.empty()) {
      release(c.in);  // a parked connection keeps no buffer
      return arm(c);
    }
    if (c.scanned == 0) {
      const auto now = Clock::now();
      c.quick = now - c.answered < kStay;
      set_deadline(c, now + options.head_timeout);
    }
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
      if (const auto error = exchange.router().refusal(c.head)) return refuse(c, *error);
    }
    if (!charge(c)) return;
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
  if (exchange.is_for_loop(c.head)) return answer_here(c);
  // Counted here: a thread that has sent its answer may not be ready for the next job yet.
  if (counts.inflight < options.max_inflight + options.queue && give_to_worker(c)) return;
  refuse(c, {503, "overloaded", "too many requests at once", {}, {{"Retry-After", "1"}}},
         c.head.method != "HEAD");
}

// Returns false if no worker can take it.
bool Server::Impl::give_to_worker(Connection& c) {
  const Connection::State before = std::exchange(c.state, Connection::kBusy);
  ++counts.inflight;
  bool taken = false;
  try {
    taken = workers.submit([this, &c] { work(c); });
  } catch (const std::bad_alloc&) {
  }
  if (taken) {
    set_deadline(c, Clock::time_point::max());  // no worker reads it
    return true;
  }
  --counts.inflight;
  c.state = before;
  return false;
}

void Server::Impl::answer_here(Connection& c) {
  set_deadline(c, Clock::time_point::max());
  exchange.begin(c);
  CHECK(!c.answer->stream);
  write_more(c);
}

// Leaves the rest to the next round.
void Server::Impl::take_turns() {
  for (const uint64_t until = ready.moved + kRoundBytes;
       !ready.turns.empty() && ready.moved < until;) {
    const int fd = ready.turns.front();
    ready.turns.pop_front();
    const auto found = connections.find(fd);
    if (found == connections.end()) continue;
    Connection& c = *found->second;
    guarded(fd, [&] {
      if (c.state == Connection::kWriting) return write_more(c);
      if (c.state == Connection::kBody || c.state == Connection::kDrain) read_more(c);
    });
  }
}

void Server::Impl::write_more(Connection& c) {
  Answer& answer = *c.answer;
  c.state = Connection::kWriting;
  const uint64_t before = answer.out.sent();
  const bool gone = answer.failed || answer.out.send_some(c, kTurnBytes) == Io::kGone;
  ready.moved += answer.out.sent() - before;
  if (gone) return cut_off(c);
  if (answer.stream && answer.out.unsent_text() <= kStreamBytes / 2) return make_more(c);
  if (answer.out.empty()) return finish(c);
  set_deadline(c, answer.out.deadline());
  // A client that has shut down sending may still read.
  const uint32_t event = c.waits_for == POLLIN ? EPOLLIN : EPOLLOUT;
  watch(EPOLL_CTL_MOD, c.fd.get(), event | EPOLLONESHOT);
}

// Ends an answer whose client is gone or too slow. Ending a stream may block, and is a worker's.
void Server::Impl::cut_off(Connection& c) {
  c.answer->failed = true;
  if (c.answer->stream) return make_more(c);
  finish(c);
}

void Server::Impl::make_more(Connection& c) {
  c.state = Connection::kWaiting;
  if (give_to_worker(c)) return;
  ready.waiting.push_back(c.fd.get());
  // Also if no worker will report, for want of memory or a thread.
  set_deadline(c, Clock::now() + kRetry);
}

void Server::Impl::finish(Connection& c) {
  const bool keep = exchange.end(c);
  dispose({.answer = std::move(c.answer)});
  next(c, keep);
}

void Server::Impl::next(Connection& c, bool keep) {
  c.memory.reset();
  release(c.head);
  c.state = Connection::kHead;
  c.waits_for = POLLIN;
  if (!keep || stop_begun()) return drain(c);
  set_deadline(c, Clock::now() + options.idle_timeout);
  if (c.in.empty()) return advance(c);
  ready.asked.push_back(c.fd.get());  // later: an answer may have called this
}

void Server::Impl::work(Connection& c) noexcept {
  Connection::Report report = Connection::kEnded;
  try {
    report = answer_all(c);
  } catch (...) {  // out of memory while answering
    c.answer.reset();
    try {
      log_error("[http] an answer failed");
    } catch (...) {
    }
  }
  c.report = report;
  reports.add(c);
  wake_reader(wake);
}

Connection::Report Server::Impl::answer_all(Connection& c) {
  for (;;) {
    if (c.answer == nullptr) exchange.begin(c);
    if (!make_and_send(c)) return Connection::kToWrite;
    const bool keep = exchange.end(c);
    c.answer.reset();
    if (!keep) return Connection::kEnded;
    c.answered = Clock::now();
    if (!next_at_once(c)) return Connection::kKept;
  }
}

// Sends what the socket takes at once; the loop does the rest, so that no slow client keeps a
// thread.
bool Server::Impl::make_and_send(Connection& c) {
  Answer& answer = *c.answer;
  for (;;) {
    exchange.produce(c);
    const Io io = answer.failed ? Io::kGone : answer.out.send_some(c, kTurnBytes);
    answer.failed = answer.failed || io == Io::kGone;
    if (answer.failed && !answer.stream) return true;
    if (answer.failed) continue;  // ends the stream
    if (!answer.stream) return answer.out.empty();
    if (answer.out.unsent_text() > kStreamBytes / 2) return false;
  }
}

// A step's client soon sends the next one: the worker waits for it, which saves waking the loop and
// a worker. Half of the workers stay free for others.
bool Server::Impl::next_at_once(Connection& c) {
  if (!c.quick || c.head.content_length > kUnguardedBody || stopping) return false;
  if (counts.inflight + counts.staying > options.max_inflight / 2) return false;
  ++counts.staying;
  --counts.inflight;
  if (c.in.empty() && !has_pending(c)) {
    pollfd ready{c.fd.get(), POLLIN, 0};
    c.quick = ::poll(&ready, 1, static_cast<int>(kStay.count())) > 0;
  }
  const bool room = ++counts.inflight <= options.max_inflight + options.queue;
  --counts.staying;
  return c.quick && room && take_whole(c);
}

// Takes a good request with its whole body, if available; anything else stays in `in`.
bool Server::Impl::take_whole(Connection& c) {
  if (c.in.empty() && receive(c, c.in, options.max_head_bytes + 1) != Io::kDone) return false;
  size_t scanned = 0;
  const auto end = find_head_end(c.in, scanned);
  if (!end || *end > options.max_head_bytes) return false;
  auto parsed = parse_request_head(std::string_view(c.in).substr(0, *end),
                                   {options.max_headers, options.max_body_bytes});
  auto* const head = std::get_if<RequestHead>(&parsed);
  if (head == nullptr || head->content_length > c.in.size() - *end) return false;
  c.head = std::move(*head);
  c.body = c.in.substr(*end, c.head.content_length);
  c.in.erase(0, *end + c.head.content_length);
  return true;
}

void Server::Impl::take_reports() {
  Connection* list = reports.take();
  if (list == nullptr) return;
  while (list != nullptr) {
    Connection& c = *list;
    list = c.next_report;
    --counts.inflight;
    guarded(c.fd.get(), [&] { take_report(c); });
  }
  // Streams that found no worker, in their order.
  size_t done = 0;
  for (; done < ready.waiting.size(); ++done) {
    const auto found = connections.find(ready.waiting[done]);
    if (found == connections.end() || found->second->state != Connection::kWaiting) continue;
    if (!give_to_worker(*found->second)) break;
  }
  ready.waiting.erase(ready.waiting.begin(), ready.waiting.begin() + static_cast<ptrdiff_t>(done));
}

void Server::Impl::take_report(Connection& c) {
  if (c.report == Connection::kToWrite) {
    c.state = Connection::kWriting;
    return ready.turns.push_back(c.fd.get());
  }
  next(c, c.report == Connection::kKept);
}

// Answers from the loop and ends the connection. The answer fits a fresh socket's buffer; a client
// with a full buffer is not reading and gets none.
void Server::Impl::refuse(Connection& c, const HttpError& error, bool with_body) {
  const std::string id = request_id(c.head.headers);
  // A bad head may still have a path, and only that is used.
  const bool known = c.state != Connection::kHead;
  const std::vector<std::string> segments =
      known ? c.head.segments : std::vector<std::string>{first_segment(c.in)};
  const std::string answer =
      closing_answer(exchange.router().render(error, segments, id), id, with_body);
  exchange.tell_refused(
      {id, client_address(c.peer, c.head.headers, proxies), error.status, error.code});
  const iovec piece{const_cast<char*>(answer.data()), answer.size()};
  size_t sent = 0;
  send(c, {&piece, 1}, sent);
  drain(c);
}

// The oldest draining connections make room: first of the same address, then of all.
void Server::Impl::drain(Connection& c) {
  dispose({std::move(c.memory), std::move(c.in), std::move(c.body)});
  const auto make_room = [&](const Address& of, size_t limit) {
    if (of.drains.size() >= std::max<size_t>(limit / kDrainsPart, 1)) end_oldest(of.drains);
  };
  if (c.address != nullptr) make_room(*c.address, options.max_per_address);
  make_room(deadlines.everybody, options.max_connections);
  uncount(c);
  c.state = Connection::kDrain;
  end_sending(c);
  set_deadline(c, Clock::now() + kDrainTime);
  arm(c);
}

// Frees a connection's memory; if that is much, on a worker, if there is one.
void Server::Impl::dispose(Waste waste) noexcept {
  const size_t bytes = waste.in.capacity() + waste.body.capacity();
  if (bytes <= kSmallBody && (waste.answer == nullptr || !waste.answer->out.is_large())) return;
  try {
    workers.submit([this, all = std::make_shared<Waste>(std::move(waste))]() mutable {
      release_body(all->in);
      release_body(all->body);
      all.reset();
      wake_reader(wake);  // for trim()
    });
  } catch (const std::bad_alloc&) {
  }
}

// Returns memory to the system when much has been freed; on a worker, too.
void Server::Impl::trim() {
  if (options.memory == nullptr || !options.memory->trim_is_due()) return;
  bool begun = false;
  try {
    begun = workers.submit([memory = options.memory] { memory->trim(); });
  } catch (const std::bad_alloc&) {
  }
  if (!begun) options.memory->trim_later();
}

void Server::Impl::on_timeout(Connection& c) {
  if (c.state == Connection::kWaiting) {
    if (!give_to_worker(c)) set_deadline(c, Clock::now() + kRetry);
    return;
  }
  if (c.state == Connection::kWriting) {
    if (c.answer->out.is_stuck(c)) return cut_off(c);
    return set_deadline(c, c.answer->out.deadline());
  }
  const bool partial =
      c.state == Connection::kBody || (c.state == Connection::kHead && !c.in.empty());
  if (!partial) return destroy(c);
  refuse(c, {408, "request_timeout", "the request did not arrive in time"});
}

}  // namespace split::http
