// Addresses and networks: how a URL names a host, which peers are proxies that a server trusts, and
// for whom these ask.
// Pure functions of text.
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
  // A numeric address; anything else is in no network.
  bool contains(std::string_view address) const;

 private:
  std::array<uint8_t, 16> address_{};  // of IPv6, which IPv4 is mapped into
  int bits_ = 128;
};

bool any_contains(std::span<const Network> networks, std::string_view address);

// The address of the client that a request came from: of `peer`, or, where that is one of the
// proxies, the last one that X-Forwarded-For names and that is none of them.
std::string client_address(std::string_view peer, const Headers& headers,
                           std::span<const Network> proxies);

}  // namespace split::http
