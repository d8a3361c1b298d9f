// edge_client doctor: ten lines on what works between this machine and a server, and remedies for
// what does not.
#pragma once

#include <span>
#include <string>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// `arguments` without "doctor". Returns the exit code of the first bad line, or 0. Throws
// Error(kInput) for wrong flags.
int doctor_command(std::span<const std::string> arguments, const World& world,
                   Interrupt& interrupt);

}  // namespace split::edge
