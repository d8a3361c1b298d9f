// One step of a session, or a fill, which gives rows that it has to more blocks.
#pragma once

#include "cloud_server/state/cloud.h"

namespace split::cloud {

// The session's id in the path: 32 hex digits, or 400.
const std::string& checked_id(const http::Request& request, size_t param = 0);
// That id, of the caller's sessions.
SessionName name_of(const http::Request& request);
http::Response step_session(Cloud& cloud, const http::Request& request);

}  // namespace split::cloud
