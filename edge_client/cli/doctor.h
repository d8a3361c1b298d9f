// edge_client doctor: in ten lines, what works between this machine and a server, and what to do
// about what does not.
#pragma once

#include <span>
#include <string>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// `arguments` without "doctor". The exit code of the first line that is bad, or 0. Throws
// Error(kInput) for flags that are wrong.
int doctor_command(std::span<const std::string> arguments, const World& world,
                   Interrupt& interrupt);

}  // namespace split::edge
