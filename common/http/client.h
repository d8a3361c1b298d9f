// The HTTP client of the edge: one origin, one connection kept alive, every wait bounded, every
// reply capped. It follows no redirect, decompresses nothing and takes no reply whose end it cannot
// tell. All failures are one line.
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
// http://host[:port] or https://host[:port], perhaps with a final slash. Throws Error(kInput) for
// anything else.
Url parse_url(std::string_view text);
// "http://host:port/some/where/" as {"http://host:port", "/some/where"}: an origin that parse_url()
// takes and a path, perhaps empty, without a final slash. Throws Error(kInput) for anything else, a
// query or a fragment.
struct UrlParts {
  std::string origin, path;
};
UrlParts split_url(std::string_view text);
// A server as people write it: without a scheme it is http://, and "/v1" behind it, with which
// OpenAI's clients name a server, is none of its path. Throws as split_url() does.
std::string server_url(std::string_view text);

// The proxy and addresses that a connection goes through.
struct Proxy {
  std::string host;
  int port = 1080;            // curl's
  std::string authorization;  // value of Proxy-Authorization; empty: none
};
// As curl: http_proxy or https_proxy by the URL's scheme, else all_proxy, unless no_proxy names the
// host; small letters go before capitals. This machine itself is never asked through one. Throws
// Error(kInput) for a proxy that is no http://[user:password@]host[:port].
using Environment = std::function<const char*(const char*)>;
std::optional<Proxy> proxy_for(const Url& url, const Environment& environment);

struct Reply {
  int status = 0;
  Headers headers;
  std::string body;
  // Its server gives check values (body_checksum.h), and this has none: it may answer a request
  // that changed on its way.
  bool unchecked = false;
};

// Why there is no reply.
class NoReply : public Error {
 public:
  enum class Why : uint8_t {
    kLost,  // nobody answers, or not to the end, too slowly, too much, or what is no HTTP
    kTls,   // somebody answers who does not prove to be the one who was asked
  };
  NoReply(Why why, const std::string& message) : Error(ErrorKind::kRemote, message), why(why) {}
  const Why why;
};

// One thread at a time, but for cancel().
class Client {
 public:
  struct Options {
    std::chrono::milliseconds connect_timeout{5000};
    std::chrono::milliseconds read_timeout{60000};  // silence, and the whole of a reply's head
    std::chrono::milliseconds write_timeout{30000};
    std::chrono::milliseconds total_timeout{600000};  // of request(); streams have none
    // From the first byte of a body on, so many bytes a second over each span; 0: none. A stream of
    // events (text/event-stream) must bring an event or a comment in time instead.
    uint64_t min_rate = 100;
    std::chrono::milliseconds min_rate_span{10000};
    std::chrono::milliseconds event_timeout{45000};
    uint64_t max_reply_bytes = 256ull << 20;  // of request() that says nothing else
    uint64_t max_error_bytes = 1 << 20;       // of a body whose status is not 2xx
    size_t max_head_bytes = 16 << 10;
    std::string ca_cert_file;      // PEM, for https; empty: the system's
    bool any_certificate = false;  // asks whoever answers: for a server's look at itself alone
    std::optional<Proxy> proxy;
    std::string bearer_token;  // sent with every request, to this origin alone
  };

  // `url` as split_url() takes it; what is asked for is below its path. Does not connect yet.
  // Throws Error(kInput) for a bad URL, token or file of certificates.
  explicit Client(std::string_view url) : Client(url, Options()) {}
  Client(std::string_view url, Options options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Any status is a reply, of at most max_bytes (none: the options'). Throws NoReply when there is
  // none: cannot connect, timed out, connection lost, reply too large, cut short or malformed;
  // Error(kInput) for a path or header that cannot be sent.
  Reply request(std::string_view method, std::string_view path, std::string body = {},
                std::string_view content_type = {}, const Headers& headers = {},
                std::optional<uint64_t> max_bytes = {});

  // As request(), but a body of status 200 or 206 goes to on_data as it comes, at most max_bytes of
  // it; false from on_data ends the transfer quietly. An error's body is in the Reply.
  // on_status is told the status first.
  using OnData = std::function<bool(Bytes)>;
  using OnStatus = std::function<void(int)>;
  Reply stream(std::string_view method, std::string_view path, std::string body,
               std::string_view content_type, const Headers& headers, const OnData& on_data,
               uint64_t max_bytes, const OnStatus& on_status = {});
  Reply get_stream(std::string_view path, const Headers& headers, const OnData& on_data,
                   uint64_t max_bytes, const OnStatus& on_status = {}) {
    return stream("GET", path, {}, {}, headers, on_data, max_bytes, on_status);
  }

  // Sends a request without a body on the connection that is there, as its last, whose reply nobody
  // reads. False where there is none, or it does not take that at once. More of them may follow.
  bool tell(std::string_view method, std::string_view path, const Headers& headers = {});

  // Says whether the server is lost: is asked by the thread of a request when nothing has come or
  // gone for a moment, and after each further one. Then there is no reply. Set between requests.
  static constexpr std::chrono::milliseconds kSilence{500};
  void on_silence(std::function<bool()> is_lost);

  // From any thread: the request that runs, and every later one, ends with NoReply "cancelled".
  void cancel();

  const std::string& origin() const;  // "http://host:port", and the URL's path
  uint64_t connections() const;       // made so far: another number, another server perhaps

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace split::http
