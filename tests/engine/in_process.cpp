#include "in_process.h"

#include "http/client.h"
#include "http/head.h"
#include "http/range.h"

namespace split::test {
namespace {
std::atomic<InProcess*> now{nullptr};
}  // namespace

InProcess::InProcess(http::Router& router) : router(router) { now = this; }
InProcess::~InProcess() { now = nullptr; }

}  // namespace split::test

namespace split::http {

struct Client::Impl {
  Options options;
  std::string origin;
  std::function<bool()> is_lost;
  std::atomic<bool> cancelled{false};
  uint64_t connections = 1;

  test::InProcess& peer() {
    test::InProcess* const peer = test::now;
    if (!cancelled && peer != nullptr && !peer->lost) return *peer;
    ++connections;
    throw NoReply(NoReply::Why::kLost,
                  cat("[http] ", origin, cancelled ? ": cancelled" : ": nobody answers"));
  }
};

namespace {

// Hands a stream to its reader.
class Reader : public Sink {
 public:
  explicit Reader(std::function<bool(std::string_view)> read) : read_(std::move(read)) {}
  bool write(std::string_view bytes) override { return open_ = open_ && read_(bytes); }
  bool full() const override { return false; }
  bool client_gone() override { return !(open_ = open_ && read_({})); }

 private:
  std::function<bool(std::string_view)> read_;
  bool open_ = true;
};

Response answer_of(test::InProcess& peer, Request& request, const RequestHead& head) {
  Answered answered;
  try {
    return peer.router.answer(request, head.segments, false, answered);
  } catch (...) {
    return peer.router.render(current_exception_as_error(), head.segments, "");
  }
}

// The body of a whole answer; of one in pieces the bytes that were asked for.
std::string body_of(const Request& request, Response& response) {
  if (!response.owner) return std::move(response.body);
  std::string whole;
  for (const Bytes piece : response.pieces) whole += as_text(piece);
  const Selection part = select_bytes(request.method, request.headers, response.etag, whole.size());
  response.status = part.status;
  return whole.substr(part.first, part.length);
}

}  // namespace

Client::Client(std::string_view url, Options options)
    : impl_(new Impl{std::move(options), split_url(url).origin, {}}) {}
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
  test::InProcess& peer = impl_->peer();
  ++peer.asked;
  Headers fields = {{"Host", "cloud"}, {"Accept", "*/*"}};
  if (!content_type.empty()) fields.add("Content-Type", std::string(content_type));
  for (const auto& [name, value] : headers) fields.set(name, value);
  if (!body.empty() || method != "GET") {
    fields.add("Content-Length", std::to_string(body.size()));
  }
  auto read = parse_request_head(write_request_head(method, path, fields), {});
  RequestHead& head = std::get<RequestHead>(read);
  Request request;
  request.method = head.method;
  request.path = head.path;
  request.peer = "here";
  request.headers = head.headers;
  request.query_params = head.query;
  request.body = std::move(body);
  request.client_gone = [this, &peer] { return impl_->cancelled || peer.lost; };

  Response response = answer_of(peer, request, head);
  Reply reply{.status = 0, .headers = {}, .body = body_of(request, response)};
  reply.status = response.status;
  reply.headers = response.headers;
  reply.headers.set("Content-Type", response.content_type);
  if (!response.etag.empty()) reply.headers.set("ETag", response.etag);
  if (on_status) on_status(reply.status);
  const bool streams = on_data && (reply.status == 200 || reply.status == 206);
  uint64_t received = 0;
  const auto take = [&](std::string_view bytes) {
    if (impl_->cancelled || peer.lost) return false;
    received += bytes.size();
    if (received > max_bytes) return false;
    if (bytes.empty()) return true;
    if (streams) return on_data(as_bytes_of(bytes));
    reply.body += bytes;
    return true;
  };
  if (response.stream) {
    Reader reader(take);
    while (response.stream(reader) == Streamed::kMore && !reader.client_gone()) continue;
  } else if (streams) {
    take(std::exchange(reply.body, {}));
  }
  impl_->peer();  // is still there
  return reply;
}

bool Client::tell(std::string_view, std::string_view, const Headers&) { return false; }
void Client::on_silence(std::function<bool()> is_lost) { impl_->is_lost = std::move(is_lost); }
void Client::cancel() { impl_->cancelled = true; }
const std::string& Client::origin() const { return impl_->origin; }
uint64_t Client::connections() const { return impl_->connections; }

}  // namespace split::http
