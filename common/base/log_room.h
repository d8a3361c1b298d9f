// Whether a line of log can be written without waiting: nobody's request waits for whoever reads
// the log.
#pragma once

#include <cstdint>

namespace split {

// False while stderr is a pipe or a terminal that takes nothing: then a server's line is dropped,
// and counted here.
bool log_has_room();
// The lines that were dropped since the last call.
uint64_t take_dropped_lines();

}  // namespace split
