// Guards a server that is meant for this machine alone. A page from elsewhere can reach it through
// its reader's browser, perhaps under a name of its own that leads here (DNS rebinding): so a
// request must name this machine, and come from no other origin's page.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "http/router.h"

namespace split::http {

// Whether only this machine reaches a server at this host.
bool is_loopback(const std::string& host);

// Throws Error(kInput) for a host that others reach, unless `insecure` allows that. `flag`: the
// user's words; `instead`: alternatives, ending in ", or ".
void expect_only_local(const std::string& host, bool insecure, std::string_view flag,
                       std::string_view instead = {});

// Throws Error(kInput) unless each is an origin as browsers send it (scheme, host, perhaps a port),
// or "*".
void expect_origins(std::span<const std::string> origins);

// Refuses with 403 `not_local`. `hosts`: further names of this machine; `origins`: other origins
// that are allowed, or "*".
Guard local_guard(std::vector<std::string> hosts = {}, std::vector<std::string> origins = {});

}  // namespace split::http
