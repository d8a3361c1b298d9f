// The paths of --model: the bundled model's, and errors for missing paths.
#pragma once

#include <filesystem>

namespace split::cloud {

// Returns the bundled model's path: beside the binary's tree, or where the programs are installed.
// Throws Error(kInput) if it is in neither place.
std::filesystem::path bundled_model();

// Throws Error(kNotFound) for a missing path, with a hint if it is a name that the hub may know.
void expect_model(const std::filesystem::path& path);

}  // namespace split::cloud
