// A small text that is kept in the cache beside the weights, where others may put something else in
// its place.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace split::edge {

// Nothing when there is none, or it is longer than `limit`. Throws Error(kIo) for what is no file.
std::optional<std::string> read_kept(const std::filesystem::path& path, uint64_t limit);
// Replaces whatever stands there. Throws Error(kIo).
void write_kept(const std::filesystem::path& path, std::string_view text);

}  // namespace split::edge
