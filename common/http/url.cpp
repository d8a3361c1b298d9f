#include <algorithm>

#include "http/client.h"
#include "http/head.h"

namespace split::http {

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

std::string server_url(std::string_view text) {
  const std::string url = text.find("://") == text.npos ? cat("http://", text) : std::string(text);
  UrlParts parts = split_url(url);
  constexpr std::string_view kApi = "/v1";
  if (parts.path.ends_with(kApi)) parts.path.resize(parts.path.size() - kApi.size());
  if (parts.origin.ends_with('/')) parts.origin.pop_back();
  return parts.origin + parts.path;
}

}  // namespace split::http
