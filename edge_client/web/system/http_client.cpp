// http::Client over the page's fetch (page/net.js), which connects, decompresses, and sets Host,
// Content-Length and User-Agent itself. Checks and timeouts of answers are those of
// common/http/client.cpp.
#include "http/client.h"

#include <algorithm>
#include <array>
#include <optional>

#include "http/body_checksum.h"
#include "http/head.h"
#include "http/pace.h"

namespace split::http {

using Time = std::chrono::steady_clock::time_point;

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

struct Client::Impl {
  Impl(const UrlParts& parts, Options given) : options(std::move(given)) {
    parse_url(parts.origin);
    origin = (parts.origin.ends_with('/') ? parts.origin.substr(0, parts.origin.size() - 1)
                                          : parts.origin) +
             parts.path;
    if (!sendable(options.bearer_token, '!')) {
      throw Error(ErrorKind::kInput, "[http] an API key is of printable ASCII without spaces");
    }
  }

  [[noreturn]] void fail(std::string_view why) {
    ++connections;  // the next answer may come from another server
    throw NoReply(NoReply::Why::kLost, cat("[http] ", origin, ": ", why));
  }
  // Returns once something has come, or the request was cancelled. At `end` throws as `missed`
  // says.
  template <typename Missed>
  void wait(Time end, const Missed& missed);

  const Options options;
  std::string origin;
  std::function<bool()> is_lost;  // set by on_silence()
  uint64_t connections = 1;
  bool cancelled = false;
  bool peer_checks = false;  // an answer had a check value
};

namespace {

constexpr int kWait = -1, kNone = 0;

// A request of the page, ended by the destructor.
struct Exchange {
  int id;
  explicit Exchange(int id) : id(id) {}
  ~Exchange() { net_close(id); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Headers headers() const {
    std::string text(1 << 10, '\0');
    const size_t size = net_headers(id, text.data(), text.size());
    if (size > text.size()) {
      text.resize(size);
      net_headers(id, text.data(), text.size());
    }
    text.resize(size);
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

std::string lines_of(const Headers& headers) {
  std::string lines;
  for (const auto& [name, value] : headers) lines += cat(name, ": ", value, "\n");
  return lines;
}

}  // namespace

template <typename Missed>
void Client::Impl::wait(Time end, const Missed& missed) {
  for (;;) {
    const Time now = std::chrono::steady_clock::now();
    if (now >= end) fail(missed());
    const Time look = is_lost ? std::min(end, now + kSilence) : end;
    const double until = look == Time::max() ? fibres::kForever : fibres::ms_of(look);
    if (fibres::block(this, until)) return;
    if (is_lost && is_lost()) fail("the server is lost");
  }
}

Client::Client(std::string_view url, Options options)
    : impl_(std::make_unique<Impl>(split_url(url), std::move(options))) {}
Client::~Client() = default;

Reply Client::request(std::string_view method, std::string_view path, std::string body,
                      std::string_view content_type, const Headers& headers,
                      std::optional<uint64_t> max_bytes) {
  return stream(method, path, std::move(body), content_type, headers, {},
                max_bytes.value_or(impl_->options.max_reply_bytes));
}

Reply Client::stream(std::string_view method, std::string_view path, std::string body,
                     std::string_view content_type, const Headers& headers, const OnData& on_data,
                     uint64_t max_bytes, const OnStatus& on_status) {
  Impl& my = *impl_;
  const Options& options = my.options;
  if (!path.starts_with('/') || !sendable(path, '!')) {
    throw Error(ErrorKind::kInput,
                "[http] a request path starts with / and holds no spaces or controls");
  }
  Headers fields = {{"Accept", "*/*"}};
  if (!options.bearer_token.empty()) fields.add("Authorization", "Bearer " + options.bearer_token);
  if (!content_type.empty() || !body.empty()) {
    fields.add("Content-Type", content_type.empty() ? "text/plain" : std::string(content_type));
  }
  for (const auto& [name, value] : headers) {
    if (name.empty() || !sendable(name, '!') || !sendable(value, ' ')) {
      throw Error(ErrorKind::kInput, "[http] a header holds controls or is not ASCII");
    }
    fields.set(name, value);
  }
  const bool checked = !on_data && method != "HEAD";
  if (checked) add_check(fields, cat(method, ' ', path), body);

  const Time start = std::chrono::steady_clock::now();
  const Time last = on_data ? Time::max() : start + options.total_timeout;
  const std::string url = cat(my.origin, path), lines = lines_of(fields);
  const Exchange exchange(net_send(&my, method.data(), method.size(), url.data(), url.size(),
                                   lines.data(), lines.size(), body.data(), body.size()));
  const Time head_end = std::min(last, start + options.connect_timeout + options.read_timeout);
  int status = kNone;
  while (!my.cancelled && (status = net_status(exchange.id)) == kNone) {
    my.wait(head_end, [] { return "no answer in time"; });
  }
  if (my.cancelled) my.fail("cancelled");
  if (status < 0) my.fail("cannot connect, or the answer may not be read here");

  Reply reply{.status = status, .headers = exchange.headers(), .body = {}};
  if (on_status) on_status(status);
  const bool events =
      reply.headers.get("Content-Type").value_or("").starts_with("text/event-stream");
  const bool streams = on_data && (status == 200 || status == 206);
  const uint64_t most = status < 300 ? max_bytes : std::min(max_bytes, options.max_error_bytes);
  Pace pace(options, events, std::chrono::steady_clock::now());
  std::array<char, 16 << 10> room;
  uint64_t received = 0;
  for (int n = 0; (n = net_read(exchange.id, room.data(), room.size())) != 0;) {
    if (my.cancelled) my.fail("cancelled");
    if (n == kWait) {
      const Time now = std::chrono::steady_clock::now();
      const Time end = std::min({last, pace.due(), now + options.read_timeout});
      my.wait(end, [&] { return end == pace.due() ? pace.missed() : "silence"; });
      continue;
    }
    if (n < 0) my.fail("the connection was lost");
    const std::string_view bytes(room.data(), static_cast<size_t>(n));
    received += bytes.size();
    if (received > most) my.fail(cat("the reply is over ", most, " bytes"));
    if (!pace.take(std::chrono::steady_clock::now(), bytes)) my.fail(pace.missed());
    if (!streams) {
      reply.body += bytes;
    } else if (!on_data(as_bytes_of(bytes))) {
      return reply;
    }
  }
  if (checked) {
    const Check found = check(reply.headers, cat(status), reply.body);
    if (found == Check::kDamaged) my.fail("the answer changed on its way");
    my.peer_checks |= found == Check::kFits;
    reply.unchecked = my.peer_checks && found == Check::kNone;
  }
  return reply;
}

// Unsupported: the page's fetch reads every reply.
bool Client::tell(std::string_view, std::string_view, const Headers&) { return false; }

void Client::on_silence(std::function<bool()> is_lost) { impl_->is_lost = std::move(is_lost); }

void Client::cancel() {
  impl_->cancelled = true;
  fibres::wake(impl_.get(), true);
}

const std::string& Client::origin() const { return impl_->origin; }
uint64_t Client::connections() const { return impl_->connections; }

// The browser uses its own proxies.
std::optional<Proxy> proxy_for(const Url&, const Environment&) { return std::nullopt; }

}  // namespace split::http
