// The revision of the source that a program is built from.
#pragma once

#include <string_view>

namespace split {

// "149868e"; "unknown" if built without its history (-DSPLIT_REVISION=... sets it).
std::string_view source_revision();

}  // namespace split
