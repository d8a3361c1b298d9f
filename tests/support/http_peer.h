// A raw socket for the HTTP tests, perhaps with TLS over it: says exactly these bytes, shows
// exactly what comes back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <string>
#include <string_view>
#include <thread>

#include "base/file.h"
#include "http/server/server.h"
#include "http/tls.h"

namespace split::http {

class Peer {
 public:
  static constexpr int kPatience = 60;  // seconds: a test that waits this long has failed

  explicit Peer(Fd fd) : fd_(std::move(fd)) {
    const timeval limit{kPatience, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  // With a context: over TLS, whose first words are said at once, the others with the bytes.
  explicit Peer(int port, const TlsContext* tls = nullptr) : Peer(connected(port)) {
    if (tls == nullptr) return;
    tls_ = tls_connect(*tls, fd_.get(), "127.0.0.1");
    tls_handshake(tls_.get());
  }

  bool shake_hands() {
    return repeat([&] { return tls_handshake(tls_.get()); }) == TlsNext::kDone;
  }
  // False when the other side has closed.
  bool say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send_some(bytes);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Up to and with the mark, or all there was before the end.
  std::string until(std::string_view mark) {
    while (got_.find(mark) == std::string::npos && more()) continue;
    const size_t at = got_.find(mark);
    return take(at == std::string::npos ? got_.size() : at + mark.size());
  }
  std::string exactly(size_t size) {
    while (got_.size() < size && more()) continue;
    return take(std::min(size, got_.size()));
  }
  std::string to_end() {
    while (more()) continue;
    return take(got_.size());
  }
  // One answer with a Content-Length: head and body.
  std::string answer() {
    const std::string head = until("\r\n\r\n");
    const size_t at = head.find("Content-Length: ");
    return head + (at == std::string::npos ? "" : exactly(std::stoull(head.substr(at + 16))));
  }
  int fd() const { return fd_.get(); }
  SSL* tls() const { return tls_.get(); }
  void close_writing() {
    if (tls_) tls_close(tls_.get());
    ::shutdown(fd_.get(), SHUT_WR);
  }
  void close() { fd_.reset(); }

 private:
  static Fd connected(int port) {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
    return fd;
  }
  template <typename Step>
  TlsNext repeat(const Step& step) {
    for (;;) {
      const TlsNext next = step();
      if (next == TlsNext::kDone || next == TlsNext::kEnd) return next;
      pollfd poll{fd_.get(), static_cast<short>(next == TlsNext::kRead ? POLLIN : POLLOUT), 0};
      if (::poll(&poll, 1, kPatience * 1000) == 0) return TlsNext::kEnd;
    }
  }
  ssize_t send_some(std::string_view bytes) {
    if (!tls_) return ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    size_t sent = 0;
    repeat([&] { return tls_write(tls_.get(), bytes, sent); });
    return static_cast<ssize_t>(sent);
  }
  bool more() {
    char buffer[16384];
    ssize_t n = 0;
    if (tls_) {
      size_t got = 0;
      repeat([&] { return tls_read(tls_.get(), buffer, got); });
      n = static_cast<ssize_t>(got);
    } else {
      n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    }
    if (n > 0) got_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  std::string take(size_t size) {
    std::string out = got_.substr(0, size);
    got_.erase(0, size);
    return out;
  }

  Fd fd_;
  TlsSession tls_;
  std::string got_;
};

// A server of the test's routes on a thread of its own.
class Running {
 public:
  template <typename AddRoutes>
  Running(Server::Options options, AddRoutes&& add) : server(std::move(options)) {
    add(server);
    port = server.bind();
    thread_ = std::thread([this] { server.run(); });
  }
  ~Running() { stop(); }
  void stop() {
    server.stop();
    if (thread_.joinable()) thread_.join();
  }
  std::string url() const { return cat("http://127.0.0.1:", port); }

  Server server;
  int port = 0;

 private:
  std::thread thread_;
};

inline std::string get(std::string_view path, std::string_view extra = "") {
  return cat("GET ", path, " HTTP/1.1\r\nHost: x\r\n", extra, "\r\n");
}
inline std::string post(std::string_view extra, std::string_view body,
                        std::string_view path = "/echo") {
  return cat("POST ", path, " HTTP/1.1\r\nHost: x\r\n", extra, "\r\n", body);
}
inline std::string body_of(const std::string& answer) {
  return answer.substr(answer.find("\r\n\r\n") + 4);
}
inline bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
inline bool says(const std::string& answer, int status) {
  return answer.starts_with(cat("HTTP/1.1 ", status, " "));
}

// The whole answer to these bytes on a connection of their own, which the server must end.
inline std::string last_words(int port, std::string_view bytes, const TlsContext* tls = nullptr) {
  Peer peer(port, tls);
  peer.say(bytes);
  return peer.to_end();
}

}  // namespace split::http
