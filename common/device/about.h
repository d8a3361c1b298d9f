// Describes this build of a program, for --version.
#pragma once

#include <string>
#include <string_view>

namespace split {

// "edge_client 0.1.0 (149868e)", and lines with the kinds of devices that were built in and the
// instruction set of the CPU's kernels here.
std::string version_text(std::string_view program, std::string_view version);

}  // namespace split
