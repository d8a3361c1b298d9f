// Guards a server that is meant for this machine alone. A page from elsewhere reaches it
// through its reader's browser, perhaps under a name of its own that leads here (DNS rebinding):
// so a request has to call the server by a name of this machine, and come from no other page.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace split::http {

// Whether only this machine reaches a server there.
bool is_loopback(const std::string& host);

// Throws Error(kInput) for a host that others reach, unless `insecure` says that they may. `flag`
// is what the user wrote, `instead` what else would do, ending in ", or ".
void expect_only_local(const std::string& host, bool insecure, std::string_view flag,
                       std::string_view instead = {});

// Throws Error(kInput) unless each is an origin as browsers send it, a scheme and a host and
// perhaps a port, or "*".
void expect_origins(std::span<const std::string> origins);

// Refuses with 403 `not_local`. `hosts`: more names that lead here; `origins`: pages from elsewhere
// that may ask, or "*".
Guard local_guard(std::vector<std::string> hosts = {}, std::vector<std::string> origins = {});

}  // namespace split::http
