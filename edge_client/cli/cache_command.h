// `edge_client cache ls|verify|prune`: what the cache holds, whether it is what its names say, and
// making room. Needs no server.
#pragma once

#include <span>
#include <string>

#include "program/world.h"

namespace split::edge {

// `arguments` are those behind "cache". 0, or 5 when `verify` found bad bytes. Throws Error(kInput)
// for arguments that make no sense, Error(kIo).
int cache_command(std::span<const std::string> arguments, const World& world);

}  // namespace split::edge
