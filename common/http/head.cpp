#include "http/head.h"

#include <algorithm>
#include <array>

namespace split::http {
namespace {

constexpr size_t kMaxPathBytes = 1024;

bool is_token(std::string_view text) {  // RFC 9110, section 5.6.2
  constexpr std::string_view kOther = "!#$%&'*+-.^_`|~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kOther.find(c) != std::string_view::npos;
  });
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Whether a value has control characters, raw or escaped, which a careless reader would decode.
bool has_control(std::string_view value) {
  for (size_t i = 0; i < value.size(); ++i) {
    const auto c = static_cast<uint8_t>(value[i]);
    if ((c < 0x20 && c != '\t') || c == 0x7f) return true;
    if (c == '%' && i + 2 < value.size() && value[i + 1] == '0') {
      const int low = hex_value(value[i + 2]);
      if (low == 0 || low == 10 || low == 13) return true;
    }
  }
  return false;
}

// Takes a line with its CRLF off the front; nullopt if there is none.
std::optional<std::string_view> take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos || end == 0 || text[end - 1] != '\r') return std::nullopt;
  const std::string_view line = text.substr(0, end - 1);
  text.remove_prefix(end + 1);
  return line;
}

// Parses fields up to the blank line, which must end `text`.
std::optional<HttpError> parse_fields(std::string_view text, size_t max_headers, Headers& headers) {
  for (;;) {
    const auto line = take_line(text);
    if (!line) return HttpError(400, "malformed_head", "a header line does not end with CR LF");
    if (line->empty()) break;
    if (headers.size() == max_headers) {
      return HttpError(431, "too_many_headers", cat("more than ", max_headers, " header fields"));
    }
    const size_t colon = line->find(':');
    if (colon == std::string_view::npos || !is_token(line->substr(0, colon))) {
      return HttpError(400, "malformed_head", "a header line is not 'name: value'");
    }
    const std::string_view value = trim(line->substr(colon + 1));
    if (has_control(value)) {
      return HttpError(400, "malformed_head", "a header value holds control characters");
    }
    headers.add(std::string(line->substr(0, colon)), std::string(value));
  }
  if (!text.empty()) return HttpError(400, "malformed_head", "bytes after the blank line");
  return std::nullopt;
}

// Whether the comma-separated field has `item`.
bool lists(const Headers& headers, std::string_view name, std::string_view item) {
  for (const auto& [key, value] : headers) {
    if (!same_name(key, name)) continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (same_name(trim(rest.substr(0, comma)), item)) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

bool parse_query(std::string_view text, std::vector<std::pair<std::string, std::string>>& query) {
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(item.size() + 1, text.size()));
    if (item.empty()) continue;
    const size_t equals = std::min(item.find('='), item.size());
    auto key = percent_decode(item.substr(0, equals), true);
    auto value = percent_decode(item.substr(std::min(equals + 1, item.size())), true);
    if (!key || !value) return false;
    query.emplace_back(std::move(*key), std::move(*value));
  }
  return true;
}

// Takes scheme and authority off a target in absolute form (RFC 9112, section 3.2.2). nullopt for a
// URL that is not ours.
std::optional<std::string_view> take_authority(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!same_name(target.substr(0, scheme.size()), scheme)) continue;
    const std::string_view rest = target.substr(scheme.size());
    const size_t end = std::min(rest.find_first_of("/?"), rest.size());
    const auto host = host_of(rest.substr(0, end));
    if (!host || host->empty()) return std::nullopt;
    target = rest.substr(end);
    return rest.substr(0, end);
  }
  return std::nullopt;
}

// `authority`: the authority of an absolute target, else empty.
std::optional<HttpError> parse_target(std::string_view target, RequestHead& head,
                                      std::string& authority) {
  const HttpError malformed(400, "malformed_target", "the request target is not a path");
  head.target = target;
  std::string with_path;
  if (const auto named = take_authority(target)) {
    authority = *named;
    if (target.empty() && head.method == "OPTIONS") target = "*";
    if (!target.starts_with('/') && target != "*") with_path = cat("/", target);
    if (!with_path.empty()) target = with_path;
  }
  if (target == "*" && head.method == "OPTIONS") {
    head.path.assign(1, '*');
    return std::nullopt;
  }
  if (target.empty() || target.front() != '/' ||
      !std::all_of(target.begin(), target.end(),
                   [](char c) { return c > ' ' && c < 0x7f && c != '#'; })) {
    return malformed;
  }
  const size_t mark = std::min(target.find('?'), target.size());
  std::string_view path = target.substr(0, mark);
  auto decoded = percent_decode(path, false);
  if (!decoded) return malformed;
  if (decoded->size() > kMaxPathBytes)
    return HttpError(414, "path_too_long", "the path is longer than 1 KiB");
  head.path = std::move(*decoded);
  path.remove_prefix(1);
  for (;;) {
    const size_t slash = std::min(path.find('/'), path.size());
    head.segments.push_back(*percent_decode(path.substr(0, slash), false));
    if (slash == path.size()) break;
    path.remove_prefix(slash + 1);
  }
  if (!parse_query(target.substr(std::min(mark + 1, target.size())), head.query)) return malformed;
  return std::nullopt;
}

// Determines the length of the body; refuses anything ambiguous.
std::optional<HttpError> parse_framing(const HeadLimits& limits, RequestHead& head) {
  const Headers& headers = head.headers;
  const size_t lengths = headers.count("Content-Length");
  const bool takes_body = head.method == "POST" || head.method == "PUT" || head.method == "PATCH";
  if (headers.count("Transfer-Encoding") != 0) {
    if (lengths != 0 || !takes_body) {
      return HttpError(400, "ambiguous_length", "Transfer-Encoding is not taken here");
    }
    if (lists(headers, "Transfer-Encoding", "chunked")) {
      return HttpError(411, "length_required", "chunked bodies are not taken: send Content-Length");
    }
    return HttpError(501, "not_implemented", "this transfer coding is not implemented");
  }
  if (lengths > 1) return HttpError(400, "ambiguous_length", "more than one Content-Length");
  if (lengths == 0 && takes_body) {
    return HttpError(411, "length_required", "a body needs a Content-Length");
  }
  if (lengths == 1) {
    const std::string_view text = *headers.get("Content-Length");
    const bool digits = !text.empty() && std::all_of(text.begin(), text.end(),
                                                     [](char c) { return c >= '0' && c <= '9'; });
    if (!digits) return HttpError(400, "malformed_length", "Content-Length is not a whole number");
    const auto length = parse_u64(text, 0, ~0ull);
    if (!takes_body && length != 0u) {
      return HttpError(400, "unexpected_body", cat("a ", head.method, " request takes no body"));
    }
    if (!length || *length > limits.max_body_bytes) {
      return HttpError(413, "body_too_large",
                       cat("the body is over ", limits.max_body_bytes, " bytes"));
    }
    head.content_length = *length;
  }
  for (const auto& [name, value] : headers) {
    if (same_name(name, "Content-Encoding") && !same_name(value, "identity")) {
      return HttpError(415, "unsupported_encoding", "compressed bodies are not taken");
    }
  }
  return std::nullopt;
}

// RFC 9110, section 15, RFC 6585 and RFC 4918: the statuses that this project uses.
std::string_view status_name(int status) {
  constexpr std::pair<int, std::string_view> kNames[] = {
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {206, "Partial Content"},
      {304, "Not Modified"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {410, "Gone"},
      {411, "Length Required"},
      {412, "Precondition Failed"},
      {413, "Payload Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {416, "Range Not Satisfiable"},
      {417, "Expectation Failed"},
      {421, "Misdirected Request"},
      {422, "Unprocessable Entity"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {507, "Insufficient Storage"},
  };
  const auto* const found =
      std::ranges::find(kNames, status, &std::pair<int, std::string_view>::first);
  return found == std::end(kNames) ? "Other" : found->second;
}

// Writes the fields and the blank line.
std::string written(const Headers& fields) {
  std::string out;
  for (const auto& [name, value] : fields) {
    if (is_printable(name) && is_printable(value)) out += cat(name, ": ", value, "\r\n");
  }
  return out + "\r\n";
}

}  // namespace

bool sendable(std::string_view text, char lowest) {
  return std::all_of(text.begin(), text.end(), [&](char c) { return c >= lowest && c < 0x7f; });
}

std::optional<size_t> find_head_end(std::string_view buffer, size_t& scanned) {
  for (size_t i = buffer.find('\n', scanned); i != std::string_view::npos;
       i = buffer.find('\n', i + 1)) {
    const bool bare = i == 0 || buffer[i - 1] != '\r';
    if (bare || (i >= 3 && buffer[i - 2] == '\n')) return i + 1;
  }
  scanned = buffer.size();
  return std::nullopt;
}

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_space) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
      if (low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    } else if (c == '+' && plus_is_space) {
      c = ' ';
    }
    // A prompt in a query may hold any byte but NUL, which ends strings elsewhere.
    if (c == '\0' && !plus_is_space) return std::nullopt;
    out += c;
  }
  return out;
}

std::string_view trim(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t") + 1 - begin);
}

std::optional<std::string_view> host_of(std::string_view authority) {
  constexpr std::string_view kMarks = "-._~!$&'()*+,;=%";  // RFC 3986, section 3.2.2
  const bool literal = authority.starts_with('[');
  const size_t end =
      literal ? authority.find(']') : std::min(authority.find(':'), authority.size());
  if (end == authority.npos) return std::nullopt;
  const std::string_view host = authority.substr(literal ? 1 : 0, literal ? end - 1 : end);
  const std::string_view port = authority.substr(literal ? end + 1 : end);
  const auto in_name = [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  };
  const auto in_address = [](char c) { return hex_value(c) >= 0 || c == ':' || c == '.'; };
  const bool good = literal ? !host.empty() && std::ranges::all_of(host, in_address)
                            : std::ranges::all_of(host, in_name) && (!host.empty() || port.empty());
  const bool digits =
      port.empty() ||
      (port.size() <= 6 && port.front() == ':' &&
       std::ranges::all_of(port.substr(1), [](char c) { return c >= '0' && c <= '9'; }));
  return good && digits ? std::optional(host) : std::nullopt;
}

std::variant<RequestHead, HttpError> parse_request_head(std::string_view text,
                                                        const HeadLimits& limits) {
  RequestHead head;
  const auto line = take_line(text);
  if (!line) return HttpError(400, "malformed_head", "the request line does not end with CR LF");
  const size_t first = line->find(' ');
  const size_t last = line->rfind(' ');
  if (first == std::string_view::npos || first == last) {
    return HttpError(400, "malformed_head", "the request line is not 'METHOD target HTTP/1.1'");
  }
  head.method = line->substr(0, first);
  const std::string_view target = line->substr(first + 1, last - first - 1);
  const std::string_view version = line->substr(last + 1);
  if (!is_token(head.method) || !version.starts_with("HTTP/")) {
    return HttpError(400, "malformed_head", "the request line is not 'METHOD target HTTP/1.1'");
  }
  if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    return HttpError(505, "unsupported_version", "only HTTP/1.0 and HTTP/1.1 are spoken here");
  }
  head.minor_version = version.back() - '0';
  constexpr std::array<std::string_view, 7> kMethods = {"GET",    "HEAD",  "POST",   "PUT",
                                                        "DELETE", "PATCH", "OPTIONS"};
  if (std::find(kMethods.begin(), kMethods.end(), head.method) == kMethods.end()) {
    return HttpError(501, "not_implemented", "this method is not implemented");
  }
  std::string authority;
  if (auto error = parse_target(target, head, authority)) return *error;
  if (auto error = parse_fields(text, limits.max_headers, head.headers)) return *error;
  const size_t hosts = head.headers.count("Host");
  if (hosts > 1 || (hosts == 0 && head.minor_version == 1)) {
    return HttpError(400, "malformed_head", "a request has one Host");
  }
  if (hosts == 1 && !host_of(*head.headers.get("Host"))) {
    return HttpError(400, "malformed_head", "Host is not a name and perhaps a port");
  }
  if (!authority.empty()) head.headers.set("Host", authority);
  if (auto error = parse_framing(limits, head)) return *error;
  if (const auto expect = head.headers.get("Expect")) {
    if (!same_name(*expect, "100-continue")) {
      return HttpError(417, "expectation_failed", "only 100-continue can be expected");
    }
    head.expects_continue = head.minor_version == 1;
  }
  head.keep_alive = head.minor_version == 1 ? !lists(head.headers, "Connection", "close")
                                            : lists(head.headers, "Connection", "keep-alive");
  return head;
}

std::variant<ReplyHead, std::string> parse_reply_head(std::string_view text, size_t max_headers) {
  using namespace std::string_literals;
  ReplyHead head;
  const auto line = take_line(text);
  if (!line || line->size() < 12 || !line->starts_with("HTTP/1.") ||
      ((*line)[7] != '0' && (*line)[7] != '1') || (*line)[8] != ' ' ||
      (line->size() > 12 && (*line)[12] != ' ')) {
    return "is not HTTP/1.1"s;
  }
  const auto status = parse_u64(line->substr(9, 3), 200, 599);
  if (!status) return "has an unusable status"s;
  head.status = static_cast<int>(*status);
  if (auto error = parse_fields(text, max_headers, head.headers)) return error->message;
  head.keep_alive = (*line)[7] == '1' && !lists(head.headers, "Connection", "close");
  const size_t lengths = head.headers.count("Content-Length");
  const size_t codings = head.headers.count("Transfer-Encoding");
  if (lengths + codings > 1) return "has two lengths"s;
  if (codings == 1) {
    if (!same_name(*head.headers.get("Transfer-Encoding"), "chunked"))
      return "has an unknown transfer coding"s;
    head.chunked = true;
  }
  if (lengths == 1) {
    head.content_length = parse_u64(*head.headers.get("Content-Length"), 0, ~0ull);
    if (!head.content_length) return "has a malformed Content-Length"s;
  }
  return head;
}

bool is_printable(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) >= 0x20 && c != 0x7f; });
}

std::string write_reply_head(int status, const Headers& fields) {
  return cat("HTTP/1.1 ", status, ' ', status_name(status), "\r\n", written(fields));
}

std::string write_request_head(std::string_view method, std::string_view target,
                               const Headers& fields) {
  return cat(method, ' ', target, " HTTP/1.1\r\n", written(fields));
}

std::vector<std::string> split_pattern(std::string_view pattern) {
  CHECK(pattern.starts_with('/'));
  std::vector<std::string> parts;
  for (size_t at = 1;;) {
    const size_t slash = std::min(pattern.find('/', at), pattern.size());
    parts.emplace_back(pattern.substr(at, slash - at));
    if (slash == pattern.size()) return parts;
    at = slash + 1;
  }
}

std::optional<std::vector<std::string>> match_path(const std::vector<std::string>& pattern,
                                                   const std::vector<std::string>& segments) {
  if (pattern.size() != segments.size()) return std::nullopt;
  std::vector<std::string> params;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i].starts_with('{') && pattern[i].ends_with('}')) {
      if (segments[i].empty()) return std::nullopt;
      params.push_back(segments[i]);
    } else if (pattern[i] != segments[i]) {
      return std::nullopt;
    }
  }
  return params;
}

}  // namespace split::http
