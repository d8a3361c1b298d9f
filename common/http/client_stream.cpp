#include "http/client_stream.h"

#include <netdb.h>
#include <poll.h>

#include <array>

#include "base/file.h"

namespace split::http {
namespace {

constexpr size_t kBuffer = 64 << 10;  // read at once; a longer head takes a larger one
// Reads without asking first whether there is something, and whether this is cancelled.
constexpr unsigned kEager = 16;
constexpr size_t kGather =
    64 << 10;  // a request up to this size is one packet's worth of system call

}  // namespace

bool ClientExchange::wait(int fd, short events, std::chrono::milliseconds limit) {
  const auto end = std::min(deadline, Clock::now() + limit);
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return fail("timed out");
    std::array<pollfd, 2> fds = {pollfd{fd, events, 0}, pollfd{cancel_fd, POLLIN, 0}};
    const int n = ::poll(fds.data(), fds.size(), static_cast<int>(std::min<int64_t>(left, 60000)));
    if (fds[1].revents != 0) return fail("cancelled");
    if (n > 0) return true;
  }
}

int connect_to(const std::string& host, int port, ClientExchange& exchange) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int found = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (found != 0) {
    exchange.fail(cat("cannot connect: ", ::gai_strerror(found)));
    return -1;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> free_list(list, ::freeaddrinfo);
  std::string reason = "no address";
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    Fd fd(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // The library asks select(2) whether a kept connection still lives; select cannot take more.
    if (fd.get() >= FD_SETSIZE) {
      exchange.fail("cannot connect: more than 1024 open files");
      return -1;
    }
    int error = 0;
    if (!fd || ::connect(fd.get(), at->ai_addr, at->ai_addrlen) != 0) error = errno;
    if (error == EINPROGRESS) {
      if (!exchange.wait(fd.get(), POLLOUT, exchange.options.connect_timeout)) {
        if (exchange.failure == "timed out") exchange.failure = "cannot connect: timed out";
        return -1;
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
    return fd.release();
  }
  exchange.fail("cannot connect: " + reason);
  return -1;
}

bool shake_hands(SSL* session, int fd, ClientExchange& exchange) {
  const auto end_by = ClientExchange::Clock::now() + exchange.options.connect_timeout;
  for (;;) {
    const TlsNext next = tls_handshake(session);
    if (next == TlsNext::kDone) return true;
    if (next == TlsNext::kEnd) return exchange.fail("cannot connect: " + tls_failure(session));
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end_by - ClientExchange::Clock::now());
    if (!exchange.wait(fd, next == TlsNext::kRead ? POLLIN : POLLOUT, left)) {
      if (exchange.failure == "timed out") exchange.failure = "cannot connect: TLS timed out";
      return false;
    }
  }
}

bool ClientStream::send_all(std::string_view bytes) {
  while (!bytes.empty() && !write_broken_) {
    ssize_t n = -1;
    short events = POLLOUT;
    if (tls_ != nullptr) {
      size_t sent = 0;
      const TlsNext next = tls_write(tls_, bytes, sent);
      if (next == TlsNext::kDone) n = static_cast<ssize_t>(sent);
      if (next == TlsNext::kRead) events = POLLIN;
      if (next == TlsNext::kEnd) write_broken_ = true;
    } else {
      n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno != EAGAIN) write_broken_ = true;
    }
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (!write_broken_ && !exchange_.wait(fd_, events, exchange_.options.write_timeout)) {
      return false;
    }
  }
  // A peer that stopped reading may have answered why (413): go on to its reply.
  return true;
}

ssize_t ClientStream::write(const char* from, size_t size) {
  if (out_.size() + size > kGather) {
    if (!send_all(out_)) return -1;
    out_.clear();
    return send_all({from, size}) ? static_cast<ssize_t>(size) : -1;
  }
  out_.append(from, size);
  return static_cast<ssize_t>(size);
}

bool ClientStream::fill(std::chrono::milliseconds limit) {
  const size_t room = std::max(kBuffer, exchange_.options.max_head_bytes + 1);
  if (!in_) in_ = std::make_unique_for_overwrite<char[]>(room);
  if (at_ == end_) at_ = end_ = 0;
  CHECK(end_ < room);  // only a head is read while there is something unread
  short events = POLLIN;
  for (;;) {
    const bool at_hand = tls_ != nullptr && tls_pending(tls_);
    if (eager_ == 0 && !at_hand && !exchange_.wait(fd_, events, limit)) return false;
    ssize_t n = -1;
    bool again = false;
    if (tls_ != nullptr) {
      size_t got = 0;
      const TlsNext next = tls_read(tls_, {in_.get() + end_, room - end_}, got);
      if (next == TlsNext::kDone) n = static_cast<ssize_t>(got);
      again = next == TlsNext::kRead || next == TlsNext::kWrite;
      events = next == TlsNext::kWrite ? POLLOUT : POLLIN;
    } else {
      n = ::recv(fd_, in_.get() + end_, room - end_, MSG_DONTWAIT);
      again = n < 0 && (errno == EINTR || errno == EAGAIN);
    }
    eager_ = again ? 0 : (eager_ + 1) % kEager;
    if (n > 0) {
      end_ += static_cast<size_t>(n);
      return true;
    }
    if (!again) return exchange_.fail("connection lost");
  }
}

bool ClientStream::read_head() {
  const auto end_by = ClientExchange::Clock::now() + exchange_.options.read_timeout;
  size_t scanned = 0;
  std::optional<size_t> end;
  while (!(end = find_head_end(unread(), scanned))) {
    if (unread().size() > exchange_.options.max_head_bytes)
      return exchange_.fail("the reply's head is too large");
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(end_by - ClientExchange::Clock::now());
    if (!fill(left)) return false;
  }
  if (*end > exchange_.options.max_head_bytes)
    return exchange_.fail("the reply's head is too large");
  auto parsed = parse_reply_head(unread().substr(0, *end), 64);
  if (const auto* what = std::get_if<std::string>(&parsed))
    return exchange_.fail("the reply " + *what);
  ReplyHead& head = std::get<ReplyHead>(parsed);
  at_ = *end;
  const bool no_body = !exchange_.expects_body || head.status == 204 || head.status == 304;
  if (!no_body && !head.chunked && !head.content_length)
    return exchange_.fail("the reply has no length");
  left_ = head.chunked ? 0 : head.content_length.value_or(0);
  // Without a length the library reads until read() says 0, which is at the end of the body as we
  // count it.
  replay_ = no_body ? "HTTP/1.1 204 No Content\r\n" : "HTTP/1.1 200 OK\r\n";
  if (!head.keep_alive || write_broken_) replay_ += "Connection: close\r\n";
  replay_ += "\r\n";
  exchange_.head = std::move(head);
  return true;
}

bool ClientStream::read_line(std::string& line) {
  line.clear();
  for (;;) {
    for (; at_ < end_; ++at_) {
      line += in_[at_];
      if (line.ends_with("\r\n")) {
        line.resize(line.size() - 2);
        ++at_;
        return true;
      }
      if (line.size() > 256) return exchange_.fail("the reply has a malformed chunk");
    }
    if (!fill(exchange_.options.read_timeout)) return false;
  }
}

bool ClientStream::begin_chunk() {
  std::string line;
  if (!first_chunk_ && (!read_line(line) || !line.empty()))
    return exchange_.fail("the reply has a malformed chunk");
  first_chunk_ = false;
  if (!read_line(line)) return false;
  const std::string_view size = std::string_view(line).substr(0, line.find(';'));
  left_ = 0;
  if (size.empty() || size.size() > 8) return exchange_.fail("the reply has a malformed chunk");
  for (const char c : size) {
    const size_t digit = std::string_view("0123456789abcdef").find(static_cast<char>(c | 0x20));
    if (digit == std::string_view::npos || (c < '0'))
      return exchange_.fail("the reply has a malformed chunk");
    left_ = left_ * 16 + digit;
  }
  if (left_ != 0) return true;
  last_chunk_ = true;
  for (int trailers = 0; trailers < 16; ++trailers) {
    if (!read_line(line)) return false;
    if (line.empty()) return true;
  }
  return exchange_.fail("the reply has too many trailers");
}

bool ClientStream::begin_part() {
  if (left_ == 0 && exchange_.head->chunked && !last_chunk_ && !begin_chunk()) return false;
  return left_ > 0;
}

bool ClientStream::pass_body_on() {
  while (begin_part()) {
    if (at_ == end_ && !fill(exchange_.options.read_timeout)) return false;
    const std::string_view piece = unread().substr(0, left_);
    at_ += piece.size();
    left_ -= piece.size();
    if (!exchange_.on_body(piece)) return false;
  }
  return exchange_.failure.empty();
}

ssize_t ClientStream::read(char* to, size_t size) {
  if (!exchange_.head) {
    if (!send_all(out_) || !read_head()) return -1;
    out_.clear();
  }
  if (replay_at_ == replay_.size()) return pass_body_on() ? 0 : -1;
  const size_t n = std::min(size, replay_.size() - replay_at_);
  std::memcpy(to, replay_.data() + replay_at_, n);
  replay_at_ += n;
  return static_cast<ssize_t>(n);
}

}  // namespace split::http
