// Describes this build of a program, for --version.
#pragma once

#include <string>
#include <string_view>

namespace split {

// "edge_client 0.1.0 (149868e)", and lines that say which kinds of devices were built in and which
// instruction set the CPU's kernels use here.
std::string version_text(std::string_view program, std::string_view version);

}  // namespace split
