// The client's half of the framing: a kept connection, and one exchange after the other on it,
// under deadlines and caps. Private to common/http.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "http/client.h"
#include "http/head.h"
#include "http/pace.h"
#include "http/resolve.h"
#include "http/tls.h"

namespace split::http {

// A wait's end. kEnded: cancelled, or the server is lost.
enum class Waited : uint8_t { kReady, kLate, kEnded };

// Input and state of one exchange.
struct ClientExchange {
  using Clock = std::chrono::steady_clock;
  const Client::Options& options;
  int cancel_fd;  // readable once cancelled
  bool expects_body;
  Clock::time_point deadline;
  // Called with the head of a reply that has a body; false ends the exchange.
  std::function<bool(const ReplyHead&)> on_head;
  // Called with the body as it comes; false ends the exchange.
  std::function<bool(std::string_view)> on_body;
  std::optional<ReplyHead> head;
  std::string failure;  // the first failure, as part of a line
  NoReply::Why why = NoReply::Why::kLost;
  std::function<bool()> is_lost = {};  // Client::on_silence

  bool fail(const std::string& what, NoReply::Why because = NoReply::Why::kLost) {
    if (failure.empty()) {
      failure = what;
      why = because;
    }
    return false;
  }
  Waited end(const char* what) {
    fail(what);
    return Waited::kEnded;
  }
  // Waits for `events` on fd.
  Waited wait(int fd, short events, Clock::time_point until);
  // Whether the wait ended in kReady; else fails, with `late` after a timeout.
  bool in_time(Waited waited, const char* late = "timed out") {
    return waited == Waited::kLate ? fail(late) : waited == Waited::kReady;
  }
};

// One thread at a time.
class ClientConnection {
 public:
  // `tls`: null for a plain connection. The arguments outlive it.
  ClientConnection(const Url& url, const TlsContext& tls, const std::optional<Proxy>& proxy)
      : url_(url), tls_(tls), proxy_(proxy) {}
  ~ClientConnection() { close(); }
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Sends head and body, on a new connection if none is kept, and reads the reply. Returns false
  // with the reason in exchange.failure, or because a callback ended it; then, and if the reply
  // says so, the connection is closed.
  bool run(std::string_view head, std::string_view body, ClientExchange& exchange);
  void close();
  // Sends a whole request as one of the last on a kept connection. Returns false without one, or if
  // it would block.
  bool tell(std::string_view head);
  uint64_t made() const { return made_; }  // number of connections so far

 private:
  bool is_alive() const;  // kept, without unexpected bytes
  bool open(ClientExchange& exchange);
  // Returns the addresses of the server, or of the proxy; none on failure.
  NameLookup::Addresses resolve(ClientExchange& exchange);
  bool connect(ClientExchange& exchange);
  bool pass_through(ClientExchange& exchange);
  bool shake_hands(ClientExchange& exchange);
  bool send(std::string_view bytes, ClientExchange& exchange);
  // Reads more into in_.
  Waited fill(ClientExchange& exchange, ClientExchange::Clock::time_point until);
  // Reads a whole head; returns its end in unread(), or nullopt on failure.
  std::optional<size_t> fill_head(ClientExchange& exchange, std::chrono::milliseconds limit,
                                  const char* whose);
  bool read_head(ClientExchange& exchange);
  bool read_line(ClientExchange& exchange, std::string& line);  // reads a line of the chunked
                                                                // framing
  bool begin_chunk(ClientExchange& exchange);
  bool begin_part(ClientExchange& exchange);  // begins the body's next part; false at its end or on
                                              // failure
  // Reads some of the body into in_ if it is empty, within the pace.
  bool fill_body(ClientExchange& exchange);
  bool read_body(ClientExchange& exchange);
  std::string_view unread() const { return {in_.get() + at_, end_ - at_}; }

  const Url& url_;
  const TlsContext& tls_;
  const std::optional<Proxy>& proxy_;
  std::optional<NameLookup> lookup_;  // perhaps begun by an exchange that gave up
  Fd fd_;
  TlsSession session_;
  uint64_t made_ = 0;
  bool told_ = false;  // an unread reply may come: no further exchange on it

  // State of the running exchange.
  bool write_broken_ = false;
  std::unique_ptr<char[]> in_;
  size_t at_ = 0, end_ = 0;   // offsets in in_: used and filled so far
  unsigned eager_ = 0;        // reads since the last wait
  uint64_t left_ = 0;         // bytes left of the body, or of this chunk
  std::optional<Pace> pace_;  // the body's
  bool last_chunk_ = false;
  bool first_chunk_ = true;
};

}  // namespace split::http
