// Whether a log line can be written without waiting, since no request may wait for the log's
// reader.
#pragma once

#include <cstdint>

namespace split {

// Returns false while stderr is a pipe or a terminal that takes nothing: a server's line is then
// dropped, and counted here.
bool log_has_room();
// Returns the number of dropped lines since the last call.
uint64_t take_dropped_lines();

}  // namespace split
