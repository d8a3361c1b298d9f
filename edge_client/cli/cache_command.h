// `edge_client cache ls|verify|prune`: lists the cache, compares files with their names, and makes
// room. Needs no server.
#pragma once

#include <span>
#include <string>

#include "program/world.h"

namespace split::edge {

// `arguments` without "cache". Returns 0, or 5 if `verify` found bad bytes. Throws Error(kInput)
// for wrong arguments, Error(kIo).
int cache_command(std::span<const std::string> arguments, const World& world);

}  // namespace split::edge
