#include "http/client_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "http/network.h"

namespace split::http {
namespace {

constexpr size_t kBuffer = 64 << 10;  // bytes of a read; a longer head gets a larger buffer
// Reads without a poll for input or cancellation before.
constexpr unsigned kEager = 16;
constexpr size_t kOneCall = 64 << 10;  // largest request sent by one system call

bool is_event_stream(const ReplyHead& head) {
  constexpr std::string_view kEvents = "text/event-stream";
  const auto type = head.headers.get("Content-Type");
  return type && same_name(type->substr(0, kEvents.size()), kEvents);
}

// Whether the wait ended in kReady; else fails, with `late` after a timeout.
bool in_time(ClientExchange& exchange, Waited waited, const char* late = "timed out") {
  return waited == Waited::kLate ? exchange.fail(late) : waited == Waited::kReady;
}

}  // namespace

std::unique_ptr<Transport> system_transport(const UrlParts& url, const Client::Options& options) {
  return std::make_unique<ClientConnection>(parse_url(url.origin), url.path, options);
}

ClientConnection::ClientConnection(const Url& url, const std::string& prefix,
                                   const Client::Options& options)
    : Transport(origin_of(url.tls, url.host, url.port) + prefix),
      options_(options),
      url_(url),
      // A proxy needs the origin of a plain request; through TLS it sees none.
      target_(options.proxy && !url.tls ? origin() : prefix),
      cancelled_(expect_fd(::eventfd(0, EFD_CLOEXEC), "an event")) {
  if (url.tls) tls_ = tls_client_context(options.ca_cert_file);
  if (url.tls && options.any_certificate) tls_trust_anybody(tls_);
}

std::string ClientConnection::head_of(std::string_view method, std::string_view path,
                                      const Headers& fields, size_t bytes) const {
  const std::string name = host_in_url(url_.host);
  const bool usual = url_.port == (url_.tls ? 443 : 80);
  Headers all = {{"Host", usual ? name : cat(name, ":", url_.port)},
                 {"User-Agent", "splitcompute"}};
  if (options_.proxy && !url_.tls && !options_.proxy->authorization.empty()) {
    all.add("Proxy-Authorization", options_.proxy->authorization);
  }
  for (const auto& [field, value] : fields) all.set(field, value);
  if (bytes > 0 || method == "POST" || method == "PUT" || method == "PATCH") {
    all.add("Content-Length", std::to_string(bytes));
  }
  return write_request_head(method, cat(target_, path), all);
}

void ClientConnection::cancel() { wake_reader(cancelled_); }

Waited ClientConnection::wait(ClientExchange& exchange, int fd, short events,
                              ClientExchange::Clock::time_point until) {
  using Clock = ClientExchange::Clock;
  const auto end_by = std::min(exchange.deadline, until);
  const auto end = [&](const char* what) {
    exchange.fail(what);
    return Waited::kEnded;
  };
  auto asks = Clock::now() + Client::kSilence;
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(end_by - Clock::now()).count();
    if (left <= 0) return Waited::kLate;
    if (exchange.is_lost && Clock::now() >= asks) {
      if (exchange.is_lost()) return end("it does not answer");
      asks = Clock::now() + Client::kSilence;
    }
    if (exchange.is_lost) left = std::min<int64_t>(left, Client::kSilence.count());
    std::array<pollfd, 2> fds = {pollfd{fd, events, 0}, pollfd{cancelled_.get(), POLLIN, 0}};
    const int n = ::poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(left, 60000)));
    if (fds[1].revents != 0) return end("cancelled");
    if (n > 0) return Waited::kReady;
  }
}

bool ClientConnection::is_alive() const {
  if (told_) return false;
  if (session_) return tls_alive(session_.get());
  pollfd poll{fd_.get(), POLLIN | POLLRDHUP, 0};
  return fd_ && ::poll(&poll, 1, 0) == 0;
}

void ClientConnection::close() {
  if (session_) tls_close(session_.get());
  session_.reset();
  fd_.reset();
}

NameLookup::Addresses ClientConnection::resolve(ClientExchange& exchange) {
  if (!lookup_) {
    const auto& proxy = options_.proxy;
    lookup_.emplace(proxy ? proxy->host : url_.host, proxy ? proxy->port : url_.port);
  }
  const auto until = ClientExchange::Clock::now() + exchange.options.connect_timeout;
  const Waited waited = wait(exchange, lookup_->fd(), POLLIN, until);
  if (!in_time(exchange, waited, "cannot connect: no answer from the resolver")) {
    return {nullptr, nullptr};  // the next exchange waits for the same lookup
  }
  NameLookup::Found found = std::exchange(lookup_, {})->take();
  if (found.error != 0) {
    exchange.fail(cat("cannot connect: ", ::gai_strerror(found.error)));
  }
  return std::move(found.list);
}

bool ClientConnection::connect(ClientExchange& exchange) {
  const NameLookup::Addresses list = resolve(exchange);
  if (list == nullptr) return false;
  std::string reason = "no address";
  for (const addrinfo* at = list.get(); at != nullptr; at = at->ai_next) {
    Fd fd(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    int error = 0;
    if (!fd && (errno == EMFILE || errno == ENFILE)) throw file_error("a socket", errno);
    if (!fd || ::connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      const auto until = ClientExchange::Clock::now() + exchange.options.connect_timeout;
      const Waited waited = wait(exchange, fd.get(), POLLOUT, until);
      if (waited == Waited::kEnded) return false;
      if (waited == Waited::kLate) {
        // One address of a name may swallow everything while the next one answers.
        reason = "timed out";
        continue;
      }
      socklen_t size = sizeof error;
      ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    }
    if (error != 0) {
      reason = errno_text(error);
      continue;
    }
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fd_ = std::move(fd);
    return true;
  }
  return exchange.fail("cannot connect: " + reason);
}

bool ClientConnection::shake_hands(ClientExchange& exchange) {
  session_ = tls_connect(tls_, fd_.get(), url_.host);
  const auto end_by = ClientExchange::Clock::now() + exchange.options.connect_timeout;
  for (;;) {
    const TlsNext next = tls_handshake(session_.get());
    if (next == TlsNext::kDone) return true;
    if (next == TlsNext::kEnd) {
      const std::string reason = tls_failure(session_.get());
      return exchange.fail("cannot connect: " + reason,
                           reason == kConnectionLost ? NoReply::Why::kLost : NoReply::Why::kTls);
    }
    const short event = next == TlsNext::kRead ? POLLIN : POLLOUT;
    const Waited waited = wait(exchange, fd_.get(), event, end_by);
    if (!in_time(exchange, waited, "cannot connect: TLS timed out")) return false;
  }
}

// Asks the proxy for a connection to the server.
bool ClientConnection::pass_through(ClientExchange& exchange) {
  const std::string server = cat(host_in_url(url_.host), ":", url_.port);
  Headers fields = {{"Host", server}};
  const std::string& authorization = options_.proxy->authorization;
  if (!authorization.empty()) fields.add("Proxy-Authorization", authorization);
  if (!write(write_request_head("CONNECT", server, fields), exchange)) return false;
  const auto end = fill_head(exchange, exchange.options.connect_timeout, "the proxy's answer");
  if (!end) return false;
  const auto parsed = parse_reply_head(unread().substr(0, *end), 64);
  const auto* const head = std::get_if<ReplyHead>(&parsed);
  input_.at += *end;
  if (head == nullptr) return exchange.fail("the proxy's answer is no HTTP");
  if (head->status / 100 != 2) return exchange.fail(cat("the proxy answers ", head->status));
  input_.at = input_.end = 0;
  return true;
}

bool ClientConnection::open(ClientExchange& exchange) {
  if (is_alive()) return true;
  session_.reset();  // without a goodbye: nobody listens
  fd_.reset();
  told_ = false;
  if (!connect(exchange)) return false;
  if (tls_ && ((options_.proxy && !pass_through(exchange)) || !shake_hands(exchange))) {
    session_.reset();
    fd_.reset();
    return false;
  }
  ++made_;
  return true;
}

bool ClientConnection::send(ClientExchange& exchange) {
  const std::string_view body = exchange.body;
  const std::string head = head_of(exchange.method, exchange.path, exchange.fields, body.size());
  write_broken_ = false;
  input_.clear();
  body_ = {};
  const bool gather = head.size() + body.size() <= kOneCall;
  const bool done = open(exchange) &&
                    (gather ? write(cat(head, body), exchange)
                            : write(head, exchange) && write(body, exchange)) &&
                    read_head(exchange) && read_body(exchange);
  // Not reusable: the rest of a reply, or bytes after its end, are not the next one.
  if (!done || !exchange.head->keep_alive || write_broken_ || input_.at != input_.end) close();
  return done;
}

bool ClientConnection::write(std::string_view bytes, ClientExchange& exchange) {
  while (!bytes.empty() && !write_broken_) {
    ssize_t n = -1;
    short events = POLLOUT;
    if (session_) {
      size_t sent = 0;
      const TlsNext next = tls_write(session_.get(), bytes, sent);
      if (next == TlsNext::kDone) n = static_cast<ssize_t>(sent);
      if (next == TlsNext::kRead) events = POLLIN;
      if (next == TlsNext::kEnd) write_broken_ = true;
    } else {
      n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN) write_broken_ = true;
    }
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (!write_broken_) {
      const auto until = ClientExchange::Clock::now() + exchange.options.write_timeout;
      if (!in_time(exchange, wait(exchange, fd_.get(), events, until))) return false;
    }
  }
  // A peer that stopped reading may have answered why (413): go on to its reply.
  return true;
}

bool ClientConnection::tell(std::string_view method, std::string_view path, const Headers& fields) {
  if (!told_ && !is_alive()) return false;
  told_ = true;
  const std::string head = head_of(method, path, fields, 0);
  if (!session_) {
    const auto size = static_cast<ssize_t>(head.size());
    return ::send(fd_.get(), head.data(), head.size(), MSG_NOSIGNAL | MSG_DONTWAIT) == size;
  }
  size_t sent = 0;
  return tls_write(session_.get(), head, sent) == TlsNext::kDone && sent == head.size();
}

Waited ClientConnection::fill(ClientExchange& exchange, ClientExchange::Clock::time_point until) {
  const size_t room = std::max(kBuffer, exchange.options.max_head_bytes + 1);
  if (!input_.bytes) input_.bytes = std::make_unique_for_overwrite<char[]>(room);
  if (input_.at == input_.end) input_.at = input_.end = 0;
  CHECK(input_.end < room);  // only a head is read while there are unread bytes
  short events = POLLIN;
  for (;;) {
    const bool at_hand = session_ && tls_pending(session_.get());
    if (input_.eager == 0 && !at_hand) {
      const Waited waited = wait(exchange, fd_.get(), events, until);
      if (waited != Waited::kReady) return waited;
    }
    ssize_t n = -1;
    bool again = false;
    if (session_) {
      size_t got = 0;
      const TlsNext next =
          tls_read(session_.get(), {input_.bytes.get() + input_.end, room - input_.end}, got);
      if (next == TlsNext::kDone) n = static_cast<ssize_t>(got);
      again = next == TlsNext::kRead || next == TlsNext::kWrite;
      events = next == TlsNext::kWrite ? POLLOUT : POLLIN;
    } else {
      n = ::recv(fd_.get(), input_.bytes.get() + input_.end, room - input_.end, MSG_DONTWAIT);
      again = n < 0 && (errno == EINTR || errno == EAGAIN);
    }
    input_.eager = again ? 0 : (input_.eager + 1) % kEager;
    if (n > 0) {
      input_.end += static_cast<size_t>(n);
      return Waited::kReady;
    }
    if (!again) {
      exchange.fail("connection lost");
      return Waited::kEnded;
    }
  }
}

std::optional<size_t> ClientConnection::fill_head(ClientExchange& exchange,
                                                  std::chrono::milliseconds limit,
                                                  const char* whose) {
  const auto until = ClientExchange::Clock::now() + limit;
  const size_t most = exchange.options.max_head_bytes;
  size_t scanned = 0;
  std::optional<size_t> end;
  while (!(end = find_head_end(unread(), scanned)) && unread().size() <= most) {
    if (!in_time(exchange, fill(exchange, until))) return std::nullopt;
  }
  if (end && *end <= most) return end;
  exchange.fail(cat(whose, " is too large"));
  return std::nullopt;
}

bool ClientConnection::read_head(ClientExchange& exchange) {
  const auto end = fill_head(exchange, exchange.options.read_timeout, "the reply's head");
  if (!end) return false;
  auto parsed = parse_reply_head(unread().substr(0, *end), 64);
  if (const auto* what = std::get_if<std::string>(&parsed))
    return exchange.fail("the reply " + *what);
  ReplyHead& head = std::get<ReplyHead>(parsed);
  input_.at = *end;
  const bool no_body = exchange.method == "HEAD" || head.status == 204 || head.status == 304;
  if (!no_body && !head.chunked && !head.content_length)
    return exchange.fail("the reply has no length");
  exchange.head = std::move(head);
  body_.left = no_body || exchange.head->chunked ? 0 : *exchange.head->content_length;
  body_.last_chunk = no_body || !exchange.head->chunked;
  return no_body || exchange.on_head(*exchange.head);
}

bool ClientConnection::read_line(ClientExchange& exchange, std::string& line) {
  line.clear();
  const auto end_by = ClientExchange::Clock::now() + exchange.options.read_timeout;
  for (;;) {
    for (; input_.at < input_.end; ++input_.at) {
      line += input_.bytes[input_.at];
      if (line.ends_with("\r\n")) {
        line.resize(line.size() - 2);
        ++input_.at;
        return true;
      }
      if (line.size() > 256) return exchange.fail("the reply has a malformed chunk");
    }
    if (ClientExchange::Clock::now() >= end_by) return exchange.fail("timed out");
    if (!fill_body(exchange)) return false;
  }
}

bool ClientConnection::begin_chunk(ClientExchange& exchange) {
  std::string line;
  if (!body_.first_chunk && (!read_line(exchange, line) || !line.empty()))
    return exchange.fail("the reply has a malformed chunk");
  body_.first_chunk = false;
  if (!read_line(exchange, line)) return false;
  const std::string_view size = std::string_view(line).substr(0, line.find(';'));
  body_.left = 0;
  if (size.empty() || size.size() > 8) return exchange.fail("the reply has a malformed chunk");
  for (const char c : size) {
    const size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
    if (digit == std::string_view::npos || (c < '0'))
      return exchange.fail("the reply has a malformed chunk");
    body_.left = body_.left * 16 + digit;
  }
  if (body_.left != 0) return true;
  body_.last_chunk = true;
  for (int trailers = 0; trailers < 16; ++trailers) {
    if (!read_line(exchange, line)) return false;
    if (line.empty()) return true;
  }
  return exchange.fail("the reply has too many trailers");
}

bool ClientConnection::begin_part(ClientExchange& exchange) {
  if (body_.left == 0 && !body_.last_chunk && !begin_chunk(exchange)) return false;
  return body_.left > 0;
}

bool ClientConnection::fill_body(ClientExchange& exchange) {
  const auto now = ClientExchange::Clock::now(), due = pace_->due();
  if (now >= due) return exchange.fail(pace_->missed());
  const auto until = std::min(now + exchange.options.read_timeout, due);
  const Waited waited = fill(exchange, until);
  if (waited == Waited::kLate && until == due && due <= exchange.deadline) {
    return exchange.fail(pace_->missed());
  }
  return in_time(exchange, waited);
}

bool ClientConnection::read_body(ClientExchange& exchange) {
  pace_.emplace(exchange.options, is_event_stream(*exchange.head), ClientExchange::Clock::now());
  while (begin_part(exchange)) {
    if (input_.at == input_.end && !fill_body(exchange)) return false;
    const std::string_view piece = unread().substr(0, body_.left);
    if (!pace_->take(ClientExchange::Clock::now(), piece)) return exchange.fail(pace_->missed());
    input_.at += piece.size();
    body_.left -= piece.size();
    if (!exchange.on_body(piece)) return false;
  }
  return exchange.failure.empty();
}

}  // namespace split::http
