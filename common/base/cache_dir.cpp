#include "base/cache_dir.h"

namespace split {

namespace fs = std::filesystem;

std::optional<fs::path> cache_dir(const std::function<const char*(const char*)>& environment) {
  const char* const xdg = environment("XDG_CACHE_HOME");
  // The XDG specification: ignore a path that is not absolute.
  if (xdg != nullptr && fs::path(xdg).is_absolute()) return fs::path(xdg) / "splitcompute";
  const char* const home = environment("HOME");
  if (home != nullptr && fs::path(home).is_absolute())
    return fs::path(home) / ".cache" / "splitcompute";
  return std::nullopt;
}

}  // namespace split
