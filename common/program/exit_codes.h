// The exit codes of the two programs, in one table.
#pragma once

#include "base/error.h"
#include "program/flags.h"

namespace split {

inline constexpr int kExitFailed = 1;  // memory or threads too few, or a broken invariant

// The code for an error that ends a program; after a signal: interrupt.h.
int exit_code(ErrorKind kind);

// All codes, for a manual.
inline constexpr Flags::Exit kExitCodes[] = {
    {"0", "all is well, or SIGTERM"},
    {"1", "a fault of the program's own, or too little memory, threads or descriptors"},
    {"2", "usage, or input that cannot be taken"},
    {"3", "the server cannot be reached, or refuses"},
    {"4", "a file, the cache or a disk"},
    {"5", "bytes that are not what they should be"},
    {"6", "no such device, or it fails"},
    {"98", "the address is in use"},
    {"130", "Ctrl-C"},
};

}  // namespace split
