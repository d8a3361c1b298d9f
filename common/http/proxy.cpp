// Chooses a request's proxy from curl's environment variables.
#include <algorithm>

#include "base/base64.h"
#include "http/client.h"
#include "http/head.h"
#include "http/network.h"
#include "http/server/local_guard.h"

namespace split::http {
namespace {

std::string_view value_of(const Environment& environment, std::string name) {
  const char* value = environment(name.c_str());
  if (value == nullptr || *value == '\0') {
    for (char& c : name) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    value = environment(name.c_str());
  }
  return value == nullptr ? "" : value;
}

bool ends_with_name(std::string_view host, std::string_view name) {
  if (host.size() < name.size() || !same_name(host.substr(host.size() - name.size()), name)) {
    return false;
  }
  return host.size() == name.size() || host[host.size() - name.size() - 1] == '.';
}

// Whether an entry of no_proxy matches: a name and its subdomains, an address, or a network.
bool names(std::string_view entry, std::string_view host) {
  if (entry == "*") return true;
  if (entry.starts_with('.')) entry.remove_prefix(1);
  if (entry.starts_with('[') && entry.ends_with(']')) entry = entry.substr(1, entry.size() - 2);
  if (entry.empty()) return false;
  try {
    return Network::parse(entry).contains(host);
  } catch (const Error&) {
    return ends_with_name(host, entry);
  }
}

bool is_excepted(std::string_view list, std::string_view host) {
  while (!list.empty()) {
    const size_t end = std::min(list.find_first_of(", "), list.size());
    if (names(list.substr(0, end), host)) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

Proxy parse_proxy(std::string_view text) {
  const auto bad = [&] {
    // Leaves out a possible password.
    const std::string_view shown = text.substr(std::min(text.rfind('@') + 1, text.size()));
    return Error(ErrorKind::kInput, cat("[http] the proxy '", shown,
                                        "': expected http://[user:password@]host[:port]"));
  };
  std::string_view rest = text;
  constexpr std::string_view kScheme = "http://";
  if (rest.starts_with(kScheme)) {
    rest.remove_prefix(kScheme.size());
  } else if (rest.find("://") != rest.npos) {
    throw bad();  // TLS to the proxy, or SOCKS
  }
  Proxy proxy;
  if (const size_t at = rest.rfind('@'); at != rest.npos) {
    const auto user = percent_decode(rest.substr(0, at), false);
    if (!user) throw bad();
    proxy.authorization = "Basic ";
    Base64 base64(proxy.authorization);
    base64.add(as_bytes_of(*user));
    base64.finish();
    rest.remove_prefix(at + 1);
  }
  try {
    const std::string_view host = rest.substr(0, rest.find('/'));
    const bool has_port = host.rfind(':') != host.npos && !host.ends_with(']');
    const Url url = parse_url(cat(kScheme, host));
    proxy.host = url.host;
    if (has_port) proxy.port = url.port;
  } catch (const Error&) {
    throw bad();
  }
  return proxy;
}

}  // namespace

std::optional<Proxy> proxy_for(const Url& url, const Environment& environment) {
  std::string_view proxy = value_of(environment, url.tls ? "https_proxy" : "http_proxy");
  if (proxy.empty()) proxy = value_of(environment, "all_proxy");
  const bool here = is_loopback(url.host) || same_name(url.host, "localhost");
  if (proxy.empty() || here || is_excepted(value_of(environment, "no_proxy"), url.host)) {
    return std::nullopt;
  }
  return parse_proxy(proxy);
}

}  // namespace split::http
