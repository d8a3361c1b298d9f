// The revision of the source that a program is built from.
#pragma once

#include <string_view>

namespace split {

// "149868e"; "unknown" where it was built without its history (-DSPLIT_REVISION=... says it).
std::string_view source_revision();

}  // namespace split
