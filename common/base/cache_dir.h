// Where a program of this project keeps what it can make or fetch again.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>

namespace split {

// $XDG_CACHE_HOME/splitcompute, or ~/.cache/splitcompute; nothing when neither is known.
std::optional<std::filesystem::path> cache_dir(
    const std::function<const char*(const char*)>& environment);

}  // namespace split
