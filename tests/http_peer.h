// A raw socket for the HTTP tests: says exactly these bytes, shows exactly what comes back.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <string>
#include <string_view>
#include <thread>

#include "base/file.h"
#include "http/server.h"

namespace split::http {

class Peer {
 public:
  explicit Peer(Fd fd) : fd_(std::move(fd)) {
    const timeval limit{20, 0};  // a test that waits this long has failed
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  explicit Peer(int port) : Peer(connected(port)) {}

  // False when the other side has closed.
  bool say(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
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
  void close_writing() { ::shutdown(fd_.get(), SHUT_WR); }
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
  bool more() {
    char buffer[16384];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) got_.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }
  std::string take(size_t size) {
    std::string out = got_.substr(0, size);
    got_.erase(0, size);
    return out;
  }

  Fd fd_;
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
inline std::string last_words(int port, std::string_view bytes) {
  Peer peer(port);
  peer.say(bytes);
  return peer.to_end();
}

}  // namespace split::http
