// Addresses and networks: how a URL names a host, which peers are trusted proxies, and the clients
// behind them. Pure functions of text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "http/message.h"

namespace split::http {

// "127.0.0.1", "[::1]", "a.example".
std::string host_in_url(const std::string& host);
// "http://127.0.0.1:8080", "https://[::1]:8080".
std::string origin_of(bool tls, const std::string& host, int port);

class Network {
 public:
  // "10.0.0.0/8", "::1". Throws Error(kInput).
  static Network parse(std::string_view text);
  // Whether a numeric address is in the network; false for anything else.
  bool contains(std::string_view address) const;

 private:
  std::array<uint8_t, 16> address_{};  // IPv6; IPv4 is mapped
  int bits_ = 128;
};

bool any_contains(std::span<const Network> networks, std::string_view address);

// Returns the address of a request's client: `peer`, or, if that is one of the proxies, the last
// address in X-Forwarded-For that is not a proxy's.
std::string client_address(std::string_view peer, const Headers& headers,
                           std::span<const Network> proxies);

}  // namespace split::http
