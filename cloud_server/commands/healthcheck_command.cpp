#include "cloud_server/commands/healthcheck_command.h"

#include <iostream>

#include "base/log.h"
#include "http/client.h"
#include "http/network.h"
#include "program/exit_codes.h"

namespace split::cloud {

int healthcheck_command(bool tls, const std::string& address, int port) {
  const bool everywhere = address == "0.0.0.0" || address == "::";
  const std::string host = everywhere ? "127.0.0.1" : address;
  http::Client::Options client;
  client.any_certificate = true;
  client.connect_timeout = client.read_timeout = std::chrono::seconds(2);
  try {
    const http::Reply reply =
        http::Client(http::origin_of(tls, host, port), client).request("GET", "/readyz");
    std::cout << reply.body;
    return reply.status == 200 ? 0 : kExitFailed;
  } catch (const http::NoReply& error) {
    log_error(error.what());
    return kExitFailed;
  }
}

}  // namespace split::cloud
