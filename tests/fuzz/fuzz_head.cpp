// Any bytes as the head of a request and of a reply: refused with a status that a server may send,
// or a head whose parts are what framing rests on.
#include "fuzz.h"
#include "http/head.h"

using namespace split;  // NOLINT(google-build-using-namespace): a program of its own

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  size_t scanned = 0;
  const auto end = http::find_head_end(text, scanned);
  // Found in pieces as in one.
  size_t in_pieces = 0;
  const auto half = http::find_head_end(text.substr(0, size / 2), in_pieces);
  CHECK((half ? half : http::find_head_end(text, in_pieces)) == end);
  if (!end) return 0;
  CHECK(*end <= size);
  const http::HeadLimits limits;
  const auto request = http::parse_request_head(text.substr(0, *end), limits);
  if (const auto* error = std::get_if<http::HttpError>(&request)) {
    CHECK(error->status >= 400 && error->status < 600);
    http::error_response(*error);
  } else {
    const auto& head = std::get<http::RequestHead>(request);
    CHECK(head.content_length <= limits.max_body_bytes &&
          head.headers.size() <= limits.max_headers);
    CHECK(!head.headers.get("Transfer-Encoding") && head.headers.count("Content-Length") <= 1);
    CHECK(head.path.find('\0') == std::string::npos);
    if (head.method == "GET" || head.method == "HEAD") CHECK(head.content_length == 0);
  }
  const auto reply = http::parse_reply_head(text.substr(0, *end), limits.max_headers);
  if (const auto* head = std::get_if<http::ReplyHead>(&reply)) {
    CHECK(head->status >= 200 && head->status < 1000);
    CHECK(!(head->chunked && head->content_length));
  }
  return 0;
}
