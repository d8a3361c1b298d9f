// edge_client audit: computes blocks of an answer again, drawn after its server has committed
// itself to all rows by a receipt, and compares their bits.
#pragma once

#include <span>
#include <string>

#include "program/interrupt.h"
#include "program/world.h"

namespace split::edge {

// `arguments` without "audit". Returns 0 if all draws agree. Throws Error(kInput) for wrong flags,
// a receipt that cannot be read, and bits that this machine does not compute; Error(kIntegrity)
// where a comparison fails; Error(kRemote) for a server that gives no rows.
int audit_command(std::span<const std::string> arguments, const World& world, Interrupt& interrupt);

}  // namespace split::edge
