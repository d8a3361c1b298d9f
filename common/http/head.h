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
  std::vector<std::string> segments;  // the path's, split before decoding: %2F does not separate
  std::vector<std::pair<std::string, std::string>> query;
  Headers headers;
  uint64_t content_length = 0;
  int minor_version = 1;  // HTTP/1.x
  bool keep_alive = true;
  bool expects_continue = false;
};

// Whether the text may stand in a line of a head: ASCII from `lowest` on, '!' or ' '.
bool sendable(std::string_view text, char lowest);

// Returns the end of the head: the index after the blank line; nullopt if there is none yet.
// `scanned` keeps the place between calls. A line feed without its carriage return also ends it;
// parsing then refuses.
std::optional<size_t> find_head_end(std::string_view buffer, size_t& scanned);

// Parses a head that ends with the blank line. Stricter than RFC 9112: one way to say each thing,
// and refuses everything that two programs might read differently (two lengths, Transfer-Encoding,
// a body on GET, folded lines). A target may name the server ("http://host/path"), which then
// replaces Host.
std::variant<RequestHead, HttpError> parse_request_head(std::string_view head,
                                                        const HeadLimits& limits);

struct ReplyHead {
  int status = 0;
  Headers headers;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool keep_alive = true;
};

// Returns the host of "host", "host:port" or "[address]:port" (RFC 3986, section 3.2, without a
// user); nullopt for any other text.
std::optional<std::string_view> host_of(std::string_view authority);

// Parses a reply's head; the text says what is wrong. Refuses informational (1xx) replies: we never
// ask for one.
std::variant<ReplyHead, std::string> parse_reply_head(std::string_view head, size_t max_headers);

// Writes "HTTP/1.1 404 Not Found", the fields in their order and the blank line. Leaves out a field
// whose name or value holds control characters.
std::string write_reply_head(int status, const Headers& fields);
// Writes "GET /v1/models HTTP/1.1" and the fields in the same way.
std::string write_request_head(std::string_view method, std::string_view target,
                               const Headers& fields);
// Removes the spaces and tabs at the ends (RFC 9110's OWS).
std::string_view trim(std::string_view text);
// Whether `text` has no control characters.
bool is_printable(std::string_view text);

// Decodes %41 and, in queries, '+'; nullopt for a broken escape or a NUL.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space);

// Matches segments: "{id}" takes one that is not empty. Returns what the braces took.
std::optional<std::vector<std::string>> match_path(const std::vector<std::string>& pattern,
                                                   const std::vector<std::string>& segments);
std::vector<std::string> split_pattern(std::string_view pattern);

}  // namespace split::http
