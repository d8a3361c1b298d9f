// cloud_server --healthcheck: for container engines, which run a command to check health.
#pragma once

#include <string>

namespace split::cloud {

// Asks the server at this address of this machine whether it is ready, and returns the exit code.
// Accepts any certificate.
int healthcheck_command(bool tls, const std::string& address, int port);

}  // namespace split::cloud
