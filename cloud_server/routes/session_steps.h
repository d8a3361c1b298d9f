// A step of a session, or a fill, which computes rows of the session for further blocks.
#pragma once

#include "cloud_server/state/cloud.h"

namespace split::cloud {

// Returns the session's id in the path: 32 hex digits. Throws 400.
const std::string& checked_id(const http::Request& request, size_t param = 0);
// Returns the id with its owner.
SessionName name_of(const http::Request& request);
http::Response step_session(Cloud& cloud, const http::Request& request);

}  // namespace split::cloud
