#include "http/network.h"

#include <arpa/inet.h>

#include <algorithm>

#include "base/json.h"
#include "http/head.h"

namespace split::http {
namespace {

using AddressBytes = std::array<uint8_t, 16>;

constexpr size_t kMappedBits = 96;  // prefix length of ::ffff:0:0/96

bool is_mapped(const AddressBytes& address) {
  constexpr AddressBytes kPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kPrefix.begin(), kPrefix.begin() + kMappedBits / 8, address.begin());
}

std::optional<AddressBytes> address_of(std::string_view text) {
  AddressBytes address{};
  const std::string copy(text);
  if (::inet_pton(AF_INET6, copy.c_str(), address.data()) == 1) return address;
  address[10] = address[11] = 0xff;
  if (::inet_pton(AF_INET, copy.c_str(), &address[12]) == 1) return address;
  return std::nullopt;
}

std::string text_of(const AddressBytes& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool four = is_mapped(address);
  ::inet_ntop(four ? AF_INET : AF_INET6, &address[four ? 12 : 0], text.data(), text.size());
  return text.data();
}

// Takes the last item off a list.
std::string_view take_last(std::string_view& list) {
  const size_t comma = list.rfind(',');
  const std::string_view item = comma == list.npos ? list : list.substr(comma + 1);
  list = list.substr(0, comma == list.npos ? 0 : comma);
  return trim(item);
}

}  // namespace

std::string host_in_url(const std::string& host) {
  return host.find(':') == host.npos ? host : cat("[", host, "]");
}

std::string origin_of(bool tls, const std::string& host, int port) {
  return cat(tls ? "https://" : "http://", host_in_url(host), ":", port);
}

Network Network::parse(std::string_view text) {
  const size_t slash = std::min(text.find('/'), text.size());
  const auto address = address_of(text.substr(0, slash));
  Network network;
  if (address) {
    network.address_ = *address;
    const uint64_t most = text.substr(0, slash).find(':') == text.npos ? 32 : 128;
    const auto bits =
        slash == text.size() ? std::optional(most) : parse_u64(text.substr(slash + 1), 0, most);
    if (bits) {
      network.bits_ = static_cast<int>(128 - most + *bits);
      return network;
    }
  }
  throw Error(ErrorKind::kInput, cat("expected ADDRESS or ADDRESS/BITS, got ", shown(text)));
}

bool Network::contains(std::string_view address) const {
  const auto other = address_of(address);
  if (!other) return false;
  for (int bit = 0; bit < bits_; bit += 8) {
    const auto at = static_cast<size_t>(bit / 8);
    const auto mask = static_cast<uint8_t>(bits_ - bit >= 8 ? 0xff : 0xff << (8 - (bits_ - bit)));
    if (((address_[at] ^ (*other)[at]) & mask) != 0) return false;
  }
  return true;
}

bool any_contains(std::span<const Network> networks, std::string_view address) {
  return std::ranges::any_of(networks, [&](const Network& one) { return one.contains(address); });
}

std::string client_address(std::string_view peer, const Headers& headers,
                           std::span<const Network> proxies) {
  if (proxies.empty() || !any_contains(proxies, peer)) return std::string(peer);
  std::string list;
  for (const auto& [name, value] : headers) {
    if (same_name(name, "X-Forwarded-For")) list += cat(list.empty() ? "" : ",", value);
  }
  std::string client(peer);
  for (std::string_view left = list; !left.empty();) {
    const auto address = address_of(take_last(left));
    if (!address) break;  // an invalid entry ends the trust
    client = text_of(*address);
    if (!any_contains(proxies, client)) break;
  }
  return client;
}

}  // namespace split::http
