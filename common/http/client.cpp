#include "http/client.h"

#include <httplib.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <atomic>

#include "base/file.h"
#include "http/body_checksum.h"
#include "http/client_stream.h"

static_assert(std::string_view(CPPHTTPLIB_VERSION) == "0.11.4");

namespace split::http {
namespace {

// The library's client with our own connecting, TLS and stream. To the library all is plain.
class Guarded : public httplib::ClientImpl {
 public:
  // `tls`: none for plain HTTP.
  Guarded(const Url& url, const TlsContext& tls, ClientExchange*& exchange)
      : ClientImpl(url.host, url.port), url_(url), tls_(tls), exchange_(exchange) {}

  // The kept connection of TLS has ended, which the library's look at the socket does not show.
  bool has_ended() const { return session_ != nullptr && !tls_alive(session_.get()); }
  uint64_t connections() const { return connections_; }

 private:
  bool create_and_connect_socket(Socket& socket, httplib::Error& error) override {
    session_.reset();
    Fd fd(connect_to(url_.host, url_.port, *exchange_));
    if (fd && tls_) {
      session_ = tls_connect(tls_, fd.get(), url_.host);
      if (!shake_hands(session_.get(), fd.get(), *exchange_)) {
        session_.reset();
        fd.reset();
      }
    }
    if (fd) {
      ++connections_;
      socket.sock = fd.release();
      return true;
    }
    socket.sock = INVALID_SOCKET;
    error = httplib::Error::Connection;
    return false;
  }
  void shutdown_ssl(Socket&, bool gracefully) override {
    if (session_ && gracefully) tls_close(session_.get());
    session_.reset();
  }
  bool process_socket(const Socket& socket,
                      std::function<bool(httplib::Stream&)> callback) override {
    ClientStream stream(socket.sock, session_.get(), *exchange_);
    return callback(stream);
  }

  const Url url_;
  const TlsContext& tls_;
  TlsSession session_;
  ClientExchange*& exchange_;  // the one that runs
  uint64_t connections_ = 0;
};

bool sendable(std::string_view text, char lowest) {
  return std::all_of(text.begin(), text.end(), [&](char c) { return c >= lowest && c < 0x7f; });
}

}  // namespace

Url parse_url(std::string_view text) {
  const auto bad = [&](std::string_view what) {
    return Error(ErrorKind::kInput,
                 cat("[http] URL '", text, "': ", what, "; expected http://host[:port]"));
  };
  Url url;
  std::string_view rest = text;
  if (rest.starts_with("http://")) {
    rest.remove_prefix(7);
  } else if (rest.starts_with("https://")) {
    rest.remove_prefix(8);
    url.tls = true;
    url.port = 443;
  } else {
    throw bad("no http:// or https://");
  }
  if (rest.ends_with('/')) rest.remove_suffix(1);
  std::string_view port;
  bool has_port = false;
  if (rest.starts_with('[')) {
    const size_t close = rest.find(']');
    if (close == std::string_view::npos) throw bad("no closing bracket");
    url.host = rest.substr(1, close - 1);
    rest.remove_prefix(close + 1);
    has_port = rest.starts_with(':');
    if (!has_port && !rest.empty()) throw bad("text after the bracket");
    port = rest.substr(has_port ? 1 : 0);
  } else {
    const size_t colon = std::min(rest.find(':'), rest.size());
    url.host = rest.substr(0, colon);
    has_port = colon < rest.size();
    port = rest.substr(std::min(colon + 1, rest.size()));
  }
  const bool host_ok =
      !url.host.empty() && std::all_of(url.host.begin(), url.host.end(), [](char c) {
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               c == '.' || c == '-' || c == '_' || c == ':';
      });
  if (!host_ok) throw bad("not a host name or address (no path, query or user name)");
  if (has_port) {
    const auto number = parse_u64(port, 1, 65535);
    if (!number) throw bad("not a port");
    url.port = static_cast<int>(*number);
  }
  return url;
}

UrlParts split_url(std::string_view text) {
  const size_t scheme = text.find("://");
  const size_t slash = scheme == text.npos ? text.npos : text.find('/', scheme + 3);
  UrlParts parts{std::string(text.substr(0, slash)),
                 std::string(slash == text.npos ? "" : text.substr(slash))};
  parse_url(parts.origin);
  while (parts.path.ends_with('/')) parts.path.pop_back();
  if (!sendable(parts.path, '!') || parts.path.find_first_of("?#") != std::string::npos) {
    throw Error(ErrorKind::kInput, cat("[http] URL '", text,
                                       "': a space, a query or a fragment; expected "
                                       "http://host[:port][/path]"));
  }
  return parts;
}

struct Client::Impl {
  Impl(std::string_view text, Options given)
      : options(std::move(given)), url(parse_url(text)), cancel_fd(::eventfd(0, EFD_CLOEXEC)) {
    CHECK(cancel_fd);
    const bool six = url.host.find(':') != std::string::npos;
    const std::string name = six ? cat("[", url.host, "]") : url.host;
    origin = cat(url.tls ? "https://" : "http://", name, ":", url.port);
    host = url.port == (url.tls ? 443 : 80) ? name : cat(name, ":", url.port);
    if (!sendable(options.bearer_token, '!')) {
      throw Error(ErrorKind::kInput, "[http] an API key is of printable ASCII without spaces");
    }
    if (url.tls) tls = tls_client_context(options.ca_cert_file);
    library = std::make_unique<Guarded>(url, tls, running);
    library->set_keep_alive(true);
    library->set_follow_location(false);
    library->set_url_encode(false);
    library->set_decompress(false);
    library->set_read_timeout(options.read_timeout);
    library->set_write_timeout(options.write_timeout);
  }

  Reply send(std::string_view method, std::string_view path, std::string body,
             std::string_view content_type, const Headers& headers, const OnData* on_data,
             uint64_t max_bytes, ClientExchange::Clock::time_point end,
             const OnStatus& on_status = {});

  void verify(const Reply& reply);

  const Options options;
  const Url url;
  std::string origin, host;  // "http://host:port"; the header, without a usual port
  Fd cancel_fd;
  ClientExchange* running = nullptr;
  TlsContext tls;
  std::unique_ptr<Guarded> library;
};

Reply Client::Impl::send(std::string_view method, std::string_view path, std::string body,
                         std::string_view content_type, const Headers& headers,
                         const OnData* on_data, uint64_t max_bytes,
                         ClientExchange::Clock::time_point end, const OnStatus& on_status) {
  if (!path.starts_with('/') || !sendable(path, '!')) {
    throw Error(ErrorKind::kInput,
                "[http] a request path starts with / and holds no spaces or controls");
  }
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.body = std::move(body);
  request.headers.emplace("Host", host);
  if (!options.bearer_token.empty()) {
    request.headers.emplace("Authorization", "Bearer " + options.bearer_token);
  }
  if (!content_type.empty()) request.headers.emplace("Content-Type", content_type);
  for (const auto& [name, value] : headers) {
    if (name.empty() || !sendable(name, '!') || !sendable(value, ' ')) {
      throw Error(ErrorKind::kInput, "[http] a header holds controls or is not ASCII");
    }
    request.headers.emplace(name, value);
  }
  const bool checked = on_data == nullptr && method != "HEAD";
  if (checked) {
    request.headers.emplace(kCheckHeader, check_of(cat(method, ' ', path), request.body));
  }
  ClientExchange exchange{.options = options,
                          .cancel_fd = cancel_fd.get(),
                          .expects_body = method != "HEAD",
                          .deadline = end,
                          .on_body = {},
                          .head = {},
                          .failure = {}};
  Reply reply;
  uint64_t received = 0;
  bool stopped = false;  // by on_data
  std::exception_ptr thrown;
  exchange.on_body = [&](std::string_view bytes) {
    received += bytes.size();
    if (received > max_bytes) return exchange.fail(cat("the reply is over ", max_bytes, " bytes"));
    if (on_data == nullptr || (exchange.head->status != 200 && exchange.head->status != 206)) {
      reply.body += bytes;
      return true;
    }
    try {  // the library must not see it: it holds locks
      stopped = !(*on_data)(as_bytes_of(bytes));
    } catch (...) {
      thrown = std::current_exception();
    }
    return !stopped && !thrown;
  };
  request.response_handler = [&](const httplib::Response&) {
    const auto length = exchange.head->content_length;
    if (length && *length > max_bytes)
      return exchange.fail(cat("the reply is over ", max_bytes, " bytes"));
    if (on_status) on_status(exchange.head->status);
    return true;
  };
  httplib::Response response;
  httplib::Error error = httplib::Error::Success;
  if (library->has_ended()) library->stop();
  running = &exchange;
  const bool done = library->send(request, response, error);
  running = nullptr;
  if (!done) library->stop();  // whatever is left in that connection is not the next reply
  if (thrown) std::rethrow_exception(thrown);
  if (!done && !stopped) {
    if (exchange.failure.empty()) exchange.failure = httplib::to_string(error);
    throw Error(ErrorKind::kRemote, cat("[http] ", origin, ": ", exchange.failure));
  }
  reply.status = exchange.head->status;
  reply.headers = std::move(exchange.head->headers);
  if (checked) verify(reply);
  return reply;
}

void Client::Impl::verify(const Reply& reply) {
  const auto value = reply.headers.get(kCheckHeader);
  if (!value || compare_check(*value, cat(reply.status), reply.body) != Check::kDamaged) {
    return;
  }
  library->stop();  // what else is in this connection is no reply either
  throw Error(ErrorKind::kRemote, cat("[http] ", origin, ": the answer changed on its way"));
}

Client::Client(std::string_view url, Options options)
    : impl_(std::make_unique<Impl>(url, std::move(options))) {}
Client::~Client() = default;

Reply Client::request(std::string_view method, std::string_view path, std::string body,
                      std::string_view content_type, const Headers& headers) {
  return impl_->send(method, path, std::move(body), content_type, headers, nullptr,
                     impl_->options.max_reply_bytes,
                     ClientExchange::Clock::now() + impl_->options.total_timeout);
}

Reply Client::stream(std::string_view method, std::string_view path, std::string body,
                     std::string_view content_type, const Headers& headers, const OnData& on_data,
                     uint64_t max_bytes, const OnStatus& on_status) {
  return impl_->send(method, path, std::move(body), content_type, headers, &on_data, max_bytes,
                     ClientExchange::Clock::time_point::max(), on_status);
}

void Client::cancel() { wake_reader(impl_->cancel_fd); }

const std::string& Client::origin() const { return impl_->origin; }
uint64_t Client::connections() const { return impl_->library->connections(); }

}  // namespace split::http
