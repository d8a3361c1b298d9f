// cloud_server --healthcheck: for containers, whose own engines ask by a command.
#pragma once

#include <string>

namespace split::cloud {

// Asks the server at this address of this machine whether it is ready, and returns the exit code.
// Any certificate of its will do.
int healthcheck_command(bool tls, const std::string& address, int port);

}  // namespace split::cloud
