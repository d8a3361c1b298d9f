// The loop's way of one request: collected, checked, handed over, ended.
#include <sys/socket.h>

#include <algorithm>

#include "base/log.h"
#include "http/server_loop.h"

namespace split::http {
namespace {

constexpr std::chrono::milliseconds kDrainTime{1000};
constexpr size_t kDrainBytes = 64 << 20;
constexpr uint64_t kUnguardedBody = 64 << 10;  // received before anybody asks whose it is
// How long a worker waits for the next request of a client that came straight back before. An edge
// is back when it has computed its own part of a token.
constexpr std::chrono::milliseconds kStay{10};

}  // namespace

void Server::Impl::arm(Connection& c) {
  if (has_pending(c)) {
    pending.push_back(c.fd.get());
    return;
  }
  const uint32_t event = c.waits_for == POLLOUT ? EPOLLOUT : EPOLLIN;
  watch(EPOLL_CTL_MOD, c.fd.get(), event | EPOLLRDHUP | EPOLLONESHOT);
}

void Server::Impl::set_deadline(Connection& c, Clock::time_point deadline) {
  timers.erase({c.deadline, c.fd.get()});
  handshakes.erase({c.deadline, c.fd.get()});
  c.deadline = deadline;
  if (deadline == Clock::time_point::max()) return;
  timers.insert({deadline, c.fd.get()});
  if (c.state == Connection::kHandshake) handshakes.insert({deadline, c.fd.get()});
}

void Server::Impl::destroy(Connection& c) {
  set_deadline(c, Clock::time_point::max());
  body_bytes -= c.charged;
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
    // RFC 9112, section 2.2: blank lines before a request.
    const size_t blank = c.in.find_first_not_of("\r\n");
    if (blank != 0 && !c.in.empty()) c.in.erase(0, blank);
    if (c.in.empty()) {
      c.in.shrink_to_fit();  // a parked connection keeps no buffer
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
  // Counted here: a thread whose answer is out may not be back for the next job yet.
  const bool room = inflight <= options.max_inflight + options.queue;
  const bool taken = room && workers.submit([this, &c] {
    bool keep = false;
    try {
      keep = answer_all(c);
    } catch (...) {  // out of memory while answering, or a stream's own exception
      log_error("[http] an answer failed");
    }
    {
      const std::lock_guard lock(finished_mutex);
      finished.emplace_back(&c, keep);
    }
    wake_reader(wake);
  });
  if (!taken) {
    --inflight;
    c.state = Connection::kBody;
    refuse(c, {503, "overloaded", "too many requests at once", {}, {{"Retry-After", "1"}}},
           c.head.method != "HEAD");
  }
}

bool Server::Impl::answer_all(Connection& c) {
  while (exchange.answer(c)) {
    c.answered = Clock::now();
    if (!next_at_once(c)) return true;
  }
  return false;
}

// A step's client asks for the next one soon: whoever answered waits for it, which saves waking the
// loop, and a worker by it. Half of the workers are left to others.
bool Server::Impl::next_at_once(Connection& c) {
  if (!c.quick || c.charged > kUnguardedBody || stopping) return false;
  if (inflight + staying > options.max_inflight / 2) return false;
  ++staying;
  --inflight;
  if (c.in.empty() && !has_pending(c)) {
    pollfd ready{c.fd.get(), POLLIN, 0};
    c.quick = ::poll(&ready, 1, static_cast<int>(kStay.count())) > 0;
  }
  const bool room = ++inflight <= options.max_inflight + options.queue;
  --staying;
  return c.quick && room && take_whole(c);
}

// Takes a good request with all of its body, if it is there; anything else stays in `in`.
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
    c->waits_for = POLLIN;
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
  const std::string id = request_id(c.head.headers);
  const std::string answer = closing_answer(exchange.render(error), id, with_body);
  if (on_refused) on_refused({id, c.peer, error.status, error.code});
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
  end_sending(c);
  set_deadline(c, Clock::now() + kDrainTime);
  arm(c);
}

void Server::Impl::on_timeout(Connection& c) {
  const bool partial =
      c.state == Connection::kBody || (c.state == Connection::kHead && !c.in.empty());
  if (!partial) return destroy(c);
  refuse(c, {408, "request_timeout", "the request did not arrive in time"});
}

}  // namespace split::http
