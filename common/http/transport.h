// The way of a Client to its server, within the options' timeouts: sockets (client_connection.h), a
// page's fetch (web/fetch.cpp), or a test's. Knows no key, no check value and no limit of a body.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "http/client.h"
#include "http/head.h"

namespace split::http {

// A request, and what becomes of it.
struct ClientExchange {
  using Clock = std::chrono::steady_clock;
  std::string_view method, path;  // the path begins behind the URL's
  const Headers& fields;          // all but those that a transport adds: Host, lengths
  std::string_view body;
  const Client::Options& options;
  Clock::time_point deadline;
  // Called with the head of a reply that has a body; false ends the exchange.
  std::function<bool(const ReplyHead&)> on_head;
  // Called with the body as it comes; false ends the exchange.
  std::function<bool(std::string_view)> on_body;
  std::function<bool()> is_lost;  // Client::on_silence
  std::optional<ReplyHead> head = {};
  std::string failure = {};  // the first failure, as part of a line
  NoReply::Why why = NoReply::Why::kLost;

  bool fail(const std::string& what, NoReply::Why because = NoReply::Why::kLost) {
    if (failure.empty()) {
      failure = what;
      why = because;
    }
    return false;
  }
};

// One thread at a time, except cancel().
class Transport {
 public:
  explicit Transport(std::string origin) : origin_(std::move(origin)) {}
  virtual ~Transport() = default;

  // Sends the request and reads its reply. Returns false with the reason in exchange.failure, or
  // because a callback ended it.
  virtual bool send(ClientExchange& exchange) = 0;
  // Implements Client::tell().
  virtual bool tell(std::string_view, std::string_view, const Headers&) { return false; }
  // Gives up the connection: the next request makes another.
  virtual void close() = 0;
  // Fails the running exchange and every later one as "cancelled". Any thread.
  virtual void cancel() = 0;
  virtual uint64_t connections() const = 0;  // number of connections so far
  const std::string& origin() const { return origin_; }

 private:
  const std::string origin_;
};

// Returns the way of this system to a server. The options outlive it.
std::unique_ptr<Transport> system_transport(const UrlParts& url, const Client::Options& options);

}  // namespace split::http
