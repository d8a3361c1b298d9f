// http::Transport over the page's fetch (page/net.js), which connects, decompresses, and sets Host,
// Content-Length and User-Agent itself. Timeouts are those of common/http/client_connection.cpp.
#include <algorithm>
#include <array>

#include "base/web/fibres.h"
#include "http/pace.h"
#include "http/transport.h"

namespace split::http {
namespace {

using Clock = ClientExchange::Clock;
using Time = Clock::time_point;

extern "C" {
#define NET(name) __attribute__((import_module("net"), import_name(name)))
// Begins a request; `key` is woken when something came. Headers: lines "Name: value\n".
NET("send")
int net_send(const void* key, const char* method, size_t method_size, const char* url,
             size_t url_size, const char* headers, size_t headers_size, const char* body,
             size_t body_size);
// Returns the status; 0: not yet; negative: it failed.
NET("status") int net_status(int id);
// Copies the answer's headers, in the same form, and returns their whole size.
NET("headers") size_t net_headers(int id, char* out, size_t room);
// Copies received bytes of the body. kWait: none yet; 0: the end; kFailed.
NET("read") int net_read(int id, char* out, size_t room);
// Ends the request in any state.
NET("close") void net_close(int id);
#undef NET
}

constexpr int kWait = -1, kNone = 0;

// A request of the page, ended by the destructor.
struct Fetched {
  int id;
  explicit Fetched(int id) : id(id) {}
  ~Fetched() { net_close(id); }
  Fetched(const Fetched&) = delete;
  Fetched& operator=(const Fetched&) = delete;

  Headers headers() const {
    std::string text(net_headers(id, nullptr, 0), '\0');
    net_headers(id, text.data(), text.size());
    Headers headers;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      const std::string_view line = std::string_view(text).substr(at, end - at);
      if (const size_t colon = line.find(": "); colon != line.npos) {
        headers.add(std::string(line.substr(0, colon)), std::string(line.substr(colon + 2)));
      }
      at = end + 1;
    }
    return headers;
  }
};

class Fetch : public Transport {
 public:
  explicit Fetch(std::string origin) : Transport(std::move(origin)) {}

  bool send(ClientExchange& exchange) override {
    std::string lines;
    for (const auto& [name, value] : exchange.fields) lines += cat(name, ": ", value, "\n");
    const std::string url = cat(origin(), exchange.path);
    const Fetched reply(net_send(this, exchange.method.data(), exchange.method.size(), url.data(),
                                 url.size(), lines.data(), lines.size(), exchange.body.data(),
                                 exchange.body.size()));
    return read_head(exchange, reply) && read_body(exchange, reply);
  }
  void close() override { ++connections_; }  // the next answer may come from another server
  void cancel() override {
    cancelled_ = true;
    fibres::wake(this, true);
  }
  uint64_t connections() const override { return connections_; }

 private:
  bool read_head(ClientExchange& exchange, const Fetched& reply) {
    const Client::Options& options = exchange.options;
    const Time end =
        std::min(exchange.deadline, Clock::now() + options.connect_timeout + options.read_timeout);
    int status = kNone;
    while (!cancelled_ && (status = net_status(reply.id)) == kNone) {
      if (!wait(exchange, end, "no answer in time")) return false;
    }
    if (cancelled_) return exchange.fail("cancelled");
    if (status < 0) return exchange.fail("cannot connect, or the answer may not be read here");
    exchange.head.emplace().status = status;
    exchange.head->headers = reply.headers();
    return exchange.on_head(*exchange.head);
  }
  bool read_body(ClientExchange& exchange, const Fetched& reply) {
    const auto type = exchange.head->headers.get("Content-Type").value_or("");
    Pace pace(exchange.options, type.starts_with("text/event-stream"), Clock::now());
    std::array<char, 16 << 10> room;
    for (int n = 0; (n = net_read(reply.id, room.data(), room.size())) != 0;) {
      if (cancelled_) return exchange.fail("cancelled");
      if (n == kWait) {
        const Time end =
            std::min({exchange.deadline, pace.due(), Clock::now() + exchange.options.read_timeout});
        if (!wait(exchange, end, end == pace.due() ? pace.missed() : "silence")) return false;
        continue;
      }
      if (n < 0) return exchange.fail("the connection was lost");
      const std::string_view bytes(room.data(), static_cast<size_t>(n));
      if (!pace.take(Clock::now(), bytes)) return exchange.fail(pace.missed());
      if (!exchange.on_body(bytes)) return false;
    }
    return true;
  }
  // Returns true once something has come, or the request was cancelled. Fails at `end`.
  bool wait(ClientExchange& exchange, Time end, const std::string& missed) {
    for (;;) {
      const Time now = Clock::now();
      if (now >= end) return exchange.fail(missed);
      const Time look = exchange.is_lost ? std::min(end, now + Client::kSilence) : end;
      if (fibres::block(this, look == Time::max() ? fibres::kForever : fibres::ms_of(look))) {
        return true;
      }
      if (exchange.is_lost && exchange.is_lost()) return exchange.fail("the server is lost");
    }
  }

  bool cancelled_ = false;
  uint64_t connections_ = 1;
};

}  // namespace

std::unique_ptr<Transport> system_transport(const UrlParts& url, const Client::Options&) {
  return std::make_unique<Fetch>(url.origin + url.path);
}

// The browser uses its own proxies.
std::optional<Proxy> proxy_for(const Url&, const Environment&) { return std::nullopt; }

}  // namespace split::http
