// The client's half of the framing: a connection that is kept, and one exchange after the other on
// it, under deadlines and caps. Private to common/http.
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

// A wait's end. kEnded: the exchange has failed, since it was cancelled or its server is lost.
enum class Waited : uint8_t { kReady, kLate, kEnded };

// The state that one exchange needs and leaves behind.
struct ClientExchange {
  using Clock = std::chrono::steady_clock;
  const Client::Options& options;
  int cancel_fd;  // readable once cancelled
  bool expects_body;
  Clock::time_point deadline;
  // Sees a head behind which a body comes; false ends the exchange.
  std::function<bool(const ReplyHead&)> on_head;
  // Takes the body as it comes; false ends the exchange.
  std::function<bool(std::string_view)> on_body;
  std::optional<ReplyHead> head;
  std::string failure;  // one line's worth: what went wrong first
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
  // Whether it is ready; fails with `late` when the time was up.
  bool in_time(Waited waited, const char* late = "timed out") {
    return waited == Waited::kLate ? fail(late) : waited == Waited::kReady;
  }
};

// One thread at a time.
class ClientConnection {
 public:
  // `tls`: none for a plain connection. All outlive it.
  ClientConnection(const Url& url, const TlsContext& tls, const std::optional<Proxy>& proxy)
      : url_(url), tls_(tls), proxy_(proxy) {}
  ~ClientConnection() { close(); }
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Sends head and body, connecting first where no connection is kept, and reads the reply. False
  // with the reason in exchange.failure, or because a callback ended it; then, and where the reply
  // says so, the connection is closed.
  bool run(std::string_view head, std::string_view body, ClientExchange& exchange);
  void close();
  // Sends a whole request as the last, or one of the last, on a connection that is kept. False
  // where none is, or it would wait.
  bool tell(std::string_view head);
  uint64_t made() const { return made_; }  // connections so far

 private:
  bool is_alive() const;  // kept, and nothing has come that nobody asked for
  bool open(ClientExchange& exchange);
  // The addresses of the server, or of the proxy; none with the failure set.
  NameLookup::Addresses resolve(ClientExchange& exchange);
  bool connect(ClientExchange& exchange);
  bool pass_through(ClientExchange& exchange);
  bool shake_hands(ClientExchange& exchange);
  bool send(std::string_view bytes, ClientExchange& exchange);
  // More into in_.
  Waited fill(ClientExchange& exchange, ClientExchange::Clock::time_point until);
  // All of a head; where it ends in unread(), or nothing with the failure set.
  std::optional<size_t> fill_head(ClientExchange& exchange, std::chrono::milliseconds limit,
                                  const char* whose);
  bool read_head(ClientExchange& exchange);
  bool read_line(ClientExchange& exchange, std::string& line);  // of the chunked framing
  bool begin_chunk(ClientExchange& exchange);
  bool begin_part(ClientExchange& exchange);  // of the body; false at its end or with a failure
  // Some of the body into in_, where there is none, in time for the pace.
  bool fill_body(ClientExchange& exchange);
  bool read_body(ClientExchange& exchange);
  std::string_view unread() const { return {in_.get() + at_, end_ - at_}; }

  const Url& url_;
  const TlsContext& tls_;
  const std::optional<Proxy>& proxy_;
  std::optional<NameLookup> lookup_;  // begun, perhaps for an exchange that gave it up
  Fd fd_;
  TlsSession session_;
  uint64_t made_ = 0;
  bool told_ = false;  // a reply may come that nobody reads: nothing is asked on it any more

  // The exchange that runs.
  bool write_broken_ = false;
  std::unique_ptr<char[]> in_;
  size_t at_ = 0, end_ = 0;   // of in_: used and filled so far
  unsigned eager_ = 0;        // reads since the last wait
  uint64_t left_ = 0;         // of the body, or of this chunk
  std::optional<Pace> pace_;  // of the body
  bool last_chunk_ = false;
  bool first_chunk_ = true;
};

}  // namespace split::http
