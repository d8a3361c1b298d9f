#include "http/server/connection.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/bytes.h"
#include "base/release.h"
#include "http/server/server.h"

namespace split::http {
namespace {

bool transient(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

Io io_of(TlsNext next, Connection& connection) {
  if (next == TlsNext::kEnd) return Io::kGone;
  if (next == TlsNext::kDone) return Io::kDone;
  connection.waits_for = next == TlsNext::kWrite ? POLLOUT : POLLIN;
  return Io::kWait;
}

// Like the plain one, a record at a time.
Io receive_tls(Connection& connection, std::string& to, std::span<char> buffer) {
  size_t filled = 0;
  TlsNext next = TlsNext::kDone;
  while (next == TlsNext::kDone && filled < buffer.size()) {
    size_t got = 0;
    next = tls_read(connection.tls.get(), buffer.subspan(filled), got);
    if (next == TlsNext::kDone) filled += got;
  }
  if (filled == 0) return io_of(next, connection);
  // Bytes before the end are used first; the next call meets the end again.
  to.append(buffer.data(), filled);
  return Io::kDone;
}

}  // namespace

void release_body(std::string& body) {
  constexpr size_t kPiece = 256 << 10;  // a quarter of a millisecond
  for (size_t at = 0; body.size() > kSmallBody && at < body.size(); at += kPiece) {
    MappedFile::let_go(as_bytes_of(std::string_view(body).substr(at, kPiece)));
  }
  release(body);
}

Io handshake(Connection& connection) {
  return io_of(tls_handshake(connection.tls.get()), connection);
}

bool has_pending(const Connection& connection) {
  return connection.tls != nullptr && tls_pending(connection.tls.get());
}

void end_sending(Connection& connection) {
  if (connection.tls) tls_close(connection.tls.get());
  connection.tls.reset();
  connection.waits_for = POLLIN;
  ::shutdown(connection.fd.get(), SHUT_WR);
}

Io receive(Connection& connection, std::string& to, size_t most) {
  std::array<char, 64 << 10> buffer;
  connection.waits_for = POLLIN;
  if (connection.tls) {
    return receive_tls(connection, to, std::span(buffer).first(std::min(most, buffer.size())));
  }
  for (;;) {
    const ssize_t n =
        ::recv(connection.fd.get(), buffer.data(), std::min(most, buffer.size()), MSG_DONTWAIT);
    if (n > 0) {
      to.append(buffer.data(), static_cast<size_t>(n));
      return Io::kDone;
    }
    if (n == 0) return Io::kGone;
    if (errno != EINTR) return transient(errno) ? Io::kWait : Io::kGone;
  }
}

Io send(Connection& connection, std::span<const iovec> pieces, size_t& sent) {
  connection.waits_for = POLLOUT;
  if (connection.tls) {
    const auto piece = std::ranges::find_if(pieces, [](const iovec& p) { return p.iov_len > 0; });
    if (piece == pieces.end()) return Io::kDone;
    size_t written = 0;
    const TlsNext next = tls_write(
        connection.tls.get(), {static_cast<const char*>(piece->iov_base), piece->iov_len}, written);
    if (next == TlsNext::kDone) sent += written;
    return io_of(next, connection);
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  for (;;) {
    const ssize_t n = ::sendmsg(connection.fd.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
      return Io::kDone;
    }
    if (errno != EINTR) return transient(errno) ? Io::kWait : Io::kGone;
  }
}

bool has_input(const Connection& connection) {
  pollfd poll{connection.fd.get(), POLLIN, 0};
  return has_pending(connection) || ::poll(&poll, 1, 0) > 0;
}

bool is_gone(const Connection& connection) {
  pollfd poll{connection.fd.get(), POLLRDHUP, 0};
  return ::poll(&poll, 1, 0) > 0 &&
         (poll.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0;
}

std::string closing_answer(const Response& response, std::string_view request_id, bool with_body) {
  Headers fields = {{"Content-Type", response.content_type},
                    {"Content-Length", std::to_string(response.body.size())},
                    {"Connection", "close"},
                    {"X-Request-Id", std::string(request_id)}};
  for (const auto& [name, value] : response.headers) fields.add(name, value);
  return write_reply_head(response.status, fields) + (with_body ? response.body : "");
}

Fd listen_on(const std::string& host, int port, int backlog, int& bound_port) {
  const std::string where = cat(host, ":", port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int found = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (found != 0) {
    throw Error(ErrorKind::kInput,
                cat("[http] cannot listen on ", where, ": ", ::gai_strerror(found)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> free_list(list, ::freeaddrinfo);
  int error = 0;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    Fd fd(::socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    // Only SO_REUSEADDR: with SO_REUSEPORT a second server would bind too, and get half of the
    // connections.
    if (fd && ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        ::bind(fd.get(), at->ai_addr, at->ai_addrlen) == 0 && ::listen(fd.get(), backlog) == 0) {
      sockaddr_storage address{};
      socklen_t size = sizeof address;
      CHECK(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
      bound_port =
          ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                              : reinterpret_cast<sockaddr_in&>(address).sin_port);
      return fd;
    }
    error = errno;
  }
  throw Error(error == EADDRINUSE      ? ErrorKind::kInUse
              : error == EADDRNOTAVAIL ? ErrorKind::kInput
                                       : ErrorKind::kIo,
              cat("[http] cannot listen on ", where, ": ", errno_text(error)));
}

std::string request_id(const Headers& headers) {
  if (const auto theirs = headers.get("X-Request-Id")) {
    const bool sane = !theirs->empty() && theirs->size() <= 64 &&
                      std::all_of(theirs->begin(), theirs->end(), [](char c) {
                        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                               (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
                      });
    if (sane) return std::string(*theirs);
  }
  std::array<std::byte, 8> random{};
  random_bytes(random);
  return to_hex(random);
}

}  // namespace split::http
