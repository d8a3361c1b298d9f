// The client's half of the framing: a kept connection, and one exchange after the other on it,
// under deadlines and caps. Private to common/http.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "http/pace.h"
#include "http/resolve.h"
#include "http/tls.h"
#include "http/transport.h"

namespace split::http {

// A wait's end. kEnded: cancelled, or the server is lost.
enum class Waited : uint8_t { kReady, kLate, kEnded };

// One thread at a time, except cancel().
class ClientConnection : public Transport {
 public:
  // `prefix`: of each path. The options outlive it.
  ClientConnection(const Url& url, const std::string& prefix, const Client::Options& options);
  ~ClientConnection() override { close(); }
  ClientConnection(const ClientConnection&) = delete;
  ClientConnection& operator=(const ClientConnection&) = delete;

  // Sends on a new connection if none is kept. Closes the connection if the exchange fails, a
  // callback ends it, or the reply says so.
  bool send(ClientExchange& exchange) override;
  // Sends a whole request as one of the last on a kept connection. Returns false without one, or if
  // it would block.
  bool tell(std::string_view method, std::string_view path, const Headers& fields) override;
  void close() override;
  void cancel() override;
  uint64_t connections() const override { return made_; }

 private:
  std::string head_of(std::string_view method, std::string_view path, const Headers& fields,
                      size_t bytes) const;
  bool is_alive() const;  // kept, without unexpected bytes
  bool open(ClientExchange& exchange);
  // Returns the addresses of the server, or of the proxy; none on failure.
  NameLookup::Addresses resolve(ClientExchange& exchange);
  bool connect(ClientExchange& exchange);
  bool pass_through(ClientExchange& exchange);
  bool shake_hands(ClientExchange& exchange);
  bool write(std::string_view bytes, ClientExchange& exchange);
  // Waits for `events` on fd.
  Waited wait(ClientExchange& exchange, int fd, short events,
              ClientExchange::Clock::time_point until);
  // Reads more into input_.
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
  // Reads some of the body into input_ if it is empty, within the pace.
  bool fill_body(ClientExchange& exchange);
  bool read_body(ClientExchange& exchange);
  std::string_view unread() const {
    return {input_.bytes.get() + input_.at, input_.end - input_.at};
  }

  const Client::Options& options_;
  const Url url_;
  const std::string target_;          // prefix of a request's target
  const Fd cancelled_;                // readable once cancelled
  TlsContext tls_;                    // null for a plain connection
  std::optional<NameLookup> lookup_;  // perhaps begun by an exchange that gave up
  Fd fd_;
  TlsSession session_;
  uint64_t made_ = 0;
  bool told_ = false;  // an unread reply may come: no further exchange on it

  struct Input {
    std::unique_ptr<char[]> bytes;
    size_t at = 0, end = 0;  // offsets: used and filled so far
    unsigned eager = 0;      // reads since the last wait

    void clear() { at = end = eager = 0; }
  };
  struct Body {
    uint64_t left = 0;  // bytes left of it, or of this chunk
    bool last_chunk = false, first_chunk = true;
  };
  // State of the running exchange.
  bool write_broken_ = false;
  Input input_;
  Body body_;
  std::optional<Pace> pace_;  // the body's
};

}  // namespace split::http
