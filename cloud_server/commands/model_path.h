// Where the models of --model are: the bundled one, and what is said of a path that is not there.
#pragma once

#include <filesystem>

namespace split::cloud {

// The bundled model: beside the binary's tree, or where the programs were installed to. Throws
// Error(kInput) where it is in neither place.
std::filesystem::path bundled_model();

// Throws Error(kNotFound) for a path that is not there. A name alone may be one that the hub knows.
void expect_model(const std::filesystem::path& path);

}  // namespace split::cloud
