// The HTTP client of the edge: one origin, one connection kept alive, every wait bounded, every
// reply capped. Follows no redirect, decompresses nothing and accepts no reply without a known end.
// Every failure is one line.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "http/message.h"

namespace split::http {

struct Url {
  bool tls = false;
  std::string host;  // without the brackets of an IPv6 address
  int port = 80;
  bool operator==(const Url&) const = default;
};
// Parses http://host[:port] or https://host[:port], perhaps with a final slash. Throws
// Error(kInput) for anything else.
Url parse_url(std::string_view text);
// Splits "http://host:port/some/where/" into {"http://host:port", "/some/where"}: an origin for
// parse_url() and a path, perhaps empty, without a final slash. Throws Error(kInput) for anything
// else, a query or a fragment.
struct UrlParts {
  std::string origin, path;
};
UrlParts split_url(std::string_view text);
// Completes a server's URL as people write it: http:// is the default scheme, and a final "/v1", as
// OpenAI's clients have it, is dropped. Throws as split_url() does.
std::string server_url(std::string_view text);

// The proxy of a connection, and the addresses to connect to.
struct Proxy {
  std::string host;
  int port = 1080;            // curl's default
  std::string authorization;  // value of Proxy-Authorization; empty: none
};
// Chooses a proxy like curl: http_proxy or https_proxy by the URL's scheme, else all_proxy, unless
// no_proxy names the host; lower case goes before upper case. Never for this machine itself. Throws
// Error(kInput) for a proxy that is not http://[user:password@]host[:port].
using Environment = std::function<const char*(const char*)>;
std::optional<Proxy> proxy_for(const Url& url, const Environment& environment);

struct Reply {
  int status = 0;
  Headers headers;
  std::string body;
  // The server gives check values (body_checksum.h), but not in this reply: the request may have
  // changed on the way.
  bool unchecked = false;
};

// Why there was no reply.
class NoReply : public Error {
 public:
  enum class Why : uint8_t {
    kLost,  // no answer, an incomplete, slow or too large one, or not HTTP
    kTls,   // the peer does not prove to be the requested server
  };
  NoReply(Why why, const std::string& message) : Error(ErrorKind::kRemote, message), why(why) {}
  const Why why;
};

// Makes the way to a server; null: there is none but the system's.
class Transport;
using Connector = std::function<std::unique_ptr<Transport>(const std::string& url)>;

// One thread at a time, except cancel().
class Client {
 public:
  struct Options {
    std::chrono::milliseconds connect_timeout{5000};
    std::chrono::milliseconds read_timeout{60000};  // longest silence, and longest time for a
                                                    // reply's head
    std::chrono::milliseconds write_timeout{30000};
    std::chrono::milliseconds total_timeout{600000};  // for request(); streams have none
    // Least bytes/s of a body from its first byte on, over each span; 0: none. A stream of events
    // (text/event-stream) must have an event or a comment in time instead.
    uint64_t min_rate = 100;
    std::chrono::milliseconds min_rate_span{10000};
    std::chrono::milliseconds event_timeout{45000};
    uint64_t max_reply_bytes = 256ull << 20;  // default of request()
    uint64_t max_error_bytes = 1 << 20;       // largest body of a status other than 2xx
    size_t max_head_bytes = 16 << 10;
    std::string ca_cert_file;      // PEM, for https; empty: the system's
    bool any_certificate = false;  // accepts any certificate: for a server's check of itself
    std::optional<Proxy> proxy;
    std::string bearer_token;  // sent with every request, only to this origin
    Connector connector = {};  // asked before the system's way is taken (transport.h)
  };

  // `url`: as for split_url(); requests are below its path. Does not connect yet. Throws
  // Error(kInput) for a bad URL, token or file of certificates.
  explicit Client(std::string_view url) : Client(url, Options()) {}
  Client(std::string_view url, Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  using OnData = std::function<bool(Bytes)>;
  using OnStatus = std::function<void(int)>;
  struct Request {
    std::string_view method, path, body = {}, content_type = {};
    const Headers& headers;
    std::optional<uint64_t> max_bytes = {};  // largest reply; none: the options'
    // Gets the body of status 200 or 206 as it comes, in any time; false ends the transfer without
    // an error. An error's body is in the Reply. Called after on_status. Null: the body is there,
    // too, within the options' time.
    const OnData* on_data = nullptr;
    OnStatus on_status = {};
  };
  // Returns a reply of any status. Throws NoReply if there is none: cannot connect, timed out,
  // connection lost, reply too large, cut short or malformed; Error(kInput) for a path or header
  // that cannot be sent.
  Reply send(const Request& request);

  Reply request(std::string_view method, std::string_view path, std::string_view body = {},
                std::string_view content_type = {}, const Headers& headers = {},
                std::optional<uint64_t> max_bytes = {}) {
    return send({method, path, body, content_type, headers, max_bytes});
  }
  Reply stream(std::string_view method, std::string_view path, std::string_view body,
               std::string_view content_type, const Headers& headers, const OnData& on_data,
               uint64_t max_bytes, const OnStatus& on_status = {}) {
    return send({method, path, body, content_type, headers, max_bytes, &on_data, on_status});
  }
  Reply get_stream(std::string_view path, const Headers& headers, const OnData& on_data,
                   uint64_t max_bytes, const OnStatus& on_status = {}) {
    return stream("GET", path, {}, {}, headers, on_data, max_bytes, on_status);
  }

  // Sends a last request, without a body, on the open connection; its reply is not read. Returns
  // false without a connection, or if it would block. May be called several times.
  bool tell(std::string_view method, std::string_view path, const Headers& headers = {});

  // Sets a function that says whether the server is lost: called on a request's thread after each
  // such silence; true ends the request without a reply. Set between requests.
  static constexpr std::chrono::milliseconds kSilence{500};
  void on_silence(std::function<bool()> is_lost);

  // Ends the running request, and every later one, with NoReply "cancelled". Any thread.
  void cancel();

  const std::string& origin() const;  // "http://host:port" with the URL's path
  uint64_t connections() const;       // made so far: a new one may reach another server

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace split::http
