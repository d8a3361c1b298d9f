// A small text in the cache beside the weights, which other processes may replace.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

namespace split::edge {

// Returns nullopt if there is none, or it is longer than `limit`. Throws Error(kIo) for something
// that is no regular file.
std::optional<std::string> read_kept(const std::filesystem::path& path, uint64_t limit);
// Replaces whatever is there. Throws Error(kIo).
void write_kept(const std::filesystem::path& path, std::string_view text);

}  // namespace split::edge
