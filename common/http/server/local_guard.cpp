#include "http/server/local_guard.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>

#include "base/json.h"
#include "http/head.h"

namespace split::http {
namespace {

class LocalGuard {
 public:
  LocalGuard(std::vector<std::string> hosts, std::vector<std::string> origins)
      : hosts_(std::move(hosts)), origins_(std::move(origins)) {}

  std::string operator()(const Headers& headers) const {
    const auto host = headers.get("Host"), origin = headers.get("Origin");
    if (host && is_here(*host) && (!origin || may_ask(*origin))) return {};
    throw HttpError(403, "not_local",
                    "this server answers this machine alone, by the name localhost");
  }

 private:
  // "localhost:8081", "[::1]" and the like.
  bool is_here(std::string_view authority) const {
    const auto host = host_of(authority);
    if (!host) return false;
    std::string name(*host);
    std::ranges::transform(name, name.begin(), [](char c) {
      return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    return is_loopback(name) ||
           std::ranges::any_of(hosts_, [&](const auto& one) { return same_name(one, name); });
  }

  bool may_ask(std::string_view origin) const {
    const bool listed = std::ranges::any_of(
        origins_, [&](const std::string& one) { return one == "*" || one == origin; });
    for (const std::string_view scheme : {"http://", "https://"}) {
      if (origin.starts_with(scheme) && is_here(origin.substr(scheme.size()))) return true;
    }
    return listed;
  }

  const std::vector<std::string> hosts_, origins_;
};

// Checks for an origin as browsers send it: a scheme and a host, perhaps a port, nothing else.
bool is_origin(std::string_view text) {
  if (text == "*") return true;
  const size_t scheme = text.starts_with("http://") ? 7 : text.starts_with("https://") ? 8 : 0;
  if (scheme == 0) return false;
  const std::string_view host = text.substr(scheme);
  return !host.empty() && std::ranges::all_of(host, [](char c) {
    return std::isdigit(static_cast<unsigned char>(c)) || (c >= 'a' && c <= 'z') ||
           std::string_view("-.:[]").find(c) != std::string_view::npos;
  });
}

}  // namespace

bool is_loopback(const std::string& host) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
  return host == "localhost";
}

void expect_only_local(const std::string& host, bool insecure, std::string_view flag,
                       std::string_view instead) {
  if (insecure || is_loopback(host)) return;
  throw Error(ErrorKind::kInput, cat(flag, ": anybody who reaches it could use it; ", instead,
                                     "--insecure says that is meant"));
}

void expect_origins(std::span<const std::string> origins) {
  for (const std::string& origin : origins) {
    if (is_origin(origin)) continue;
    throw Error(ErrorKind::kInput,
                cat("--cors-origin: expected http(s)://host[:port] in lower case without a path, "
                    "or *, got ",
                    shown(origin)));
  }
}

Guard local_guard(std::vector<std::string> hosts, std::vector<std::string> origins) {
  return LocalGuard(std::move(hosts), std::move(origins));
}

}  // namespace split::http
