// The client's half of the framing: writes and reads one exchange on a connected socket, under
// deadlines and caps, and shows the HTTP library only bytes that are already checked. Private to
// common/http.
#pragma once

#include <httplib.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "http/client.h"
#include "http/head.h"
#include "http/tls.h"

namespace split::http {

// What one exchange needs to know and leaves behind.
struct ClientExchange {
  using Clock = std::chrono::steady_clock;
  const Client::Options& options;
  int cancel_fd;  // readable once cancelled
  bool expects_body;
  Clock::time_point deadline;
  // Takes the body as it comes; false ends it. The library would hand it on in pieces of 4 KiB.
  std::function<bool(std::string_view)> on_body;
  std::optional<ReplyHead> head;
  std::string failure;  // one line's worth: what went wrong first

  bool fail(const std::string& what) {
    if (failure.empty()) failure = what;
    return false;
  }
  // Waits for `events` on fd; false on timeout or cancellation.
  bool wait(int fd, short events, std::chrono::milliseconds limit);
};

// A connected socket, or -1 with the reason in exchange.failure.
int connect_to(const std::string& host, int port, ClientExchange& exchange);

// The client's half of the handshake; false with the reason in exchange.failure.
bool shake_hands(SSL* session, int fd, ClientExchange& exchange);

class ClientStream : public httplib::Stream {
 public:
  // `tls`: none for a plain connection.
  ClientStream(int fd, SSL* tls, ClientExchange& exchange)
      : fd_(fd), tls_(tls), exchange_(exchange) {}

  bool is_readable() const override { return true; }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return fd_; }

 private:
  bool send_all(std::string_view bytes);
  bool fill(std::chrono::milliseconds limit);  // more into in_; false with the failure set
  bool read_head();
  bool begin_chunk();
  bool read_line(std::string& line);  // of the chunked framing
  bool begin_part();                  // of the body; false at its end or with the failure set
  bool pass_body_on();  // all of it; false with the failure set or when nobody wants more

  int fd_;
  SSL* tls_;
  ClientExchange& exchange_;
  std::string out_;
  bool write_broken_ = false;
  std::string_view unread() const { return {in_.get() + at_, end_ - at_}; }

  std::unique_ptr<char[]> in_;
  size_t at_ = 0, end_ = 0;  // of in_: used and filled so far
  unsigned eager_ = 0;       // reads since the last wait
  std::string replay_;       // the head that the library reads
  size_t replay_at_ = 0;
  uint64_t left_ = 0;  // of the body, or of this chunk
  bool last_chunk_ = false;
  bool first_chunk_ = true;
};

}  // namespace split::http
