// The head of a request or a reply, from bytes to fields and back: every rule about framing is
// here, in pure functions, so that it can be tested and fuzzed without a socket. A head that these
// functions refuse never reaches a worker.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "http/message.h"

namespace split::http {

struct HeadLimits {
  size_t max_headers = 64;
  uint64_t max_body_bytes = 64ull << 20;
};

struct RequestHead {
  std::string method;
  std::string target;                 // as sent, perhaps with the server's name
  std::string path;                   // decoded; "*" for OPTIONS *
  std::vector<std::string> segments;  // of the path, split before decoding: %2F does not separate
  std::vector<std::pair<std::string, std::string>> query;
  Headers headers;
  uint64_t content_length = 0;
  int minor_version = 1;  // HTTP/1.x
  bool keep_alive = true;
  bool expects_continue = false;
};

// Whether all of it may stand in a line of a head: ASCII from `lowest` on, '!' or ' '.
bool sendable(std::string_view text, char lowest);

// Where the head ends: the index after the blank line, or nothing so far. `scanned` carries the
// place reached from one call to the next. A line feed without its carriage return also ends it;
// parsing then refuses.
std::optional<size_t> find_head_end(std::string_view buffer, size_t& scanned);

// `head` ends with the blank line. Stricter than RFC 9112: one way to say each thing, and
// everything that two programs might read differently (two lengths, Transfer-Encoding, a body on
// GET, folded lines) is refused. A target may name the server ("http://host/path"), whose name then
// stands in Host too.
std::variant<RequestHead, HttpError> parse_request_head(std::string_view head,
                                                        const HeadLimits& limits);

struct ReplyHead {
  int status = 0;
  Headers headers;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
};

// The host of "host", "host:port" or "[address]:port" (RFC 3986, section 3.2, without a user);
// nothing for any other text.
std::optional<std::string_view> host_of(std::string_view authority);

// The other direction; the text says what is wrong. Informational (1xx) replies are refused: we
// never ask for one.
std::variant<ReplyHead, std::string> parse_reply_head(std::string_view head, size_t max_headers);

// "HTTP/1.1 404 Not Found", the fields in their order and the blank line. A field whose name or
// value holds control characters is left out.
std::string write_reply_head(int status, const Headers& fields);
// "GET /v1/models HTTP/1.1" likewise.
std::string write_request_head(std::string_view method, std::string_view target,
                               const Headers& fields);
// The text without the spaces and tabs at its ends (RFC 9110's OWS).
std::string_view trim(std::string_view text);
// True when nothing in `text` is a control character.
bool is_printable(std::string_view text);

// %41 and, in queries, '+'; nothing for a broken escape or a NUL.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);

// "{id}" in a pattern takes one non-empty segment. A match gives what the braces took.
std::optional<std::vector<std::string>> match_path(const std::vector<std::string>& pattern,
                                                   const std::vector<std::string>& segments);
std::vector<std::string> split_pattern(std::string_view pattern);

}  // namespace split::http
