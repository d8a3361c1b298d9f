// The exit codes of the two programs, in one table. The edge's codes: 0; 2 usage or input;
// 3 the server cannot be reached or refuses; 4 cache or disk; 5 bytes that are not what they should
// be; 6 no such device; 98 the address is in use; 130 and 0 after SIGINT and SIGTERM
// (base/interrupt.h). The cloud says 1 for what it has no code of its own for.
#pragma once

#include "base/error.h"

namespace split {

inline constexpr int kExitFailed = 1;  // out of memory, or a broken invariant of ours

// For an error that ends the program.
int cloud_exit_code(ErrorKind kind);
int edge_exit_code(ErrorKind kind);

}  // namespace split
