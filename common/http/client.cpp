#include "http/client.h"

#include <algorithm>

#include "http/body_checksum.h"
#include "http/transport.h"

namespace split::http {

struct Client::Impl {
  Impl(std::string_view text, Options given) : options(std::move(given)) {
    const UrlParts url = split_url(text);
    if (!sendable(options.bearer_token, '!')) {
      throw Error(ErrorKind::kInput, "[http] an API key is of printable ASCII without spaces");
    }
    if (options.connector) transport = options.connector(std::string(text));
    if (!transport) transport = system_transport(url, options);
  }

  // Returns the fields of a request; `checked`: asks for a check value of a reply in one piece.
  Headers fields_of(std::string_view method, std::string_view path, std::string_view body,
                    std::string_view content_type, const Headers& headers, bool checked) const;
  void verify(Reply& reply);
  [[noreturn]] void fail(NoReply::Why why, std::string_view what) {
    const std::string through = options.proxy ? cat(" (through the proxy ", options.proxy->host,
                                                    ":", options.proxy->port, ")")
                                              : "";
    transport->close();  // further bytes of this connection are no reply either
    throw NoReply(why, cat("[http] ", transport->origin(), ": ", what, through));
  }

  const Options options;
  std::unique_ptr<Transport> transport;
  std::function<bool()> is_lost;  // set by on_silence()
  bool peer_checks = false;       // an answer had a check value
};

Headers Client::Impl::fields_of(std::string_view method, std::string_view path,
                                std::string_view body, std::string_view content_type,
                                const Headers& headers, bool checked) const {
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
  if (checked) add_check(fields, cat(method, ' ', path), body);
  return fields;
}

Reply Client::send(const Request& request) {
  using Time = ClientExchange::Clock;
  const Options& options = impl_->options;
  const OnData* const on_data = request.on_data;
  const uint64_t max_bytes = request.max_bytes.value_or(options.max_reply_bytes);
  const bool checked = on_data == nullptr && request.method != "HEAD";
  const Headers fields = impl_->fields_of(request.method, request.path, request.body,
                                          request.content_type, request.headers, checked);
  ClientExchange exchange{.method = request.method,
                          .path = request.path,
                          .fields = fields,
                          .body = request.body,
                          .options = options,
                          .deadline = on_data == nullptr ? Time::now() + options.total_timeout
                                                         : Time::time_point::max(),
                          .on_head = {},
                          .on_body = {},
                          .is_lost = impl_->is_lost};
  Reply reply;
  uint64_t received = 0;
  bool stopped = false;  // by on_data
  const auto too_large = [&](uint64_t most) {
    return exchange.fail(cat("the reply is over ", most, " bytes"));
  };
  exchange.on_body = [&](std::string_view bytes) {
    received += bytes.size();
    const int status = exchange.head->status;
    const uint64_t most = status < 300 ? max_bytes : std::min(max_bytes, options.max_error_bytes);
    if (received > most) return too_large(most);
    if (on_data == nullptr || (status != 200 && status != 206)) {
      reply.body += bytes;
      return true;
    }
    return !(stopped = !(*on_data)(as_bytes_of(bytes)));
  };
  exchange.on_head = [&](const ReplyHead& head) {
    if (head.content_length && *head.content_length > max_bytes) return too_large(max_bytes);
    if (request.on_status) request.on_status(head.status);
    return true;
  };
  bool done = false;
  try {
    done = impl_->transport->send(exchange);
  } catch (...) {  // a callback's exception
    impl_->transport->close();
    throw;
  }
  if (!done && !stopped) impl_->fail(exchange.why, exchange.failure);
  reply.status = exchange.head->status;
  reply.headers = std::move(exchange.head->headers);
  if (checked) impl_->verify(reply);
  return reply;
}

void Client::Impl::verify(Reply& reply) {
  const Check found = check(reply.headers, cat(reply.status), reply.body);
  if (found == Check::kDamaged) fail(NoReply::Why::kLost, "the answer changed on its way");
  peer_checks |= found == Check::kFits;
  reply.unchecked = peer_checks && found == Check::kNone;
}

Client::Client(std::string_view url, Options options)
    : impl_(std::make_unique<Impl>(url, std::move(options))) {}
Client::~Client() = default;

bool Client::tell(std::string_view method, std::string_view path, const Headers& headers) {
  return impl_->transport->tell(method, path,
                                impl_->fields_of(method, path, {}, {}, headers, true));
}

void Client::on_silence(std::function<bool()> is_lost) { impl_->is_lost = std::move(is_lost); }

void Client::cancel() { impl_->transport->cancel(); }

const std::string& Client::origin() const { return impl_->transport->origin(); }
uint64_t Client::connections() const { return impl_->transport->connections(); }

}  // namespace split::http
