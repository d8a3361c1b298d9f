// The place for files that a program of this project can make or fetch again.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

namespace split {

// Returns $XDG_CACHE_HOME/splitcompute, or ~/.cache/splitcompute; nullopt if neither is known.
std::optional<std::filesystem::path> cache_dir(
    const std::function<const char*(const char*)>& environment);

}  // namespace split
