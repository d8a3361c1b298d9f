#include "edge_client/cloud/server_address.h"

namespace split::edge {

std::unique_ptr<Remote> ServerAddress::connect(std::chrono::milliseconds timeout) const {
  return std::make_unique<Remote>(
      options_.server, Patience(timeout, options_.min_rate),
      Credentials{options_.api_key, options_.ca_cert, environment_, options_.connector});
}

bool ServerAddress::responds() const {
  constexpr std::chrono::milliseconds kPatience{1600}, kRespondsFor{500}, kLostFor{3000};
  const std::lock_guard lock(mutex_);
  if (looked_ && Clock::now() < *looked_ + (responded_ ? kRespondsFor : kLostFor)) {
    return responded_;
  }
  try {
    connect(kPatience)->ping();
    responded_ = true;
  } catch (const RemoteError& error) {
    responded_ = error.status != 0;
  }
  looked_ = Clock::now();
  return responded_;
}

}  // namespace split::edge
