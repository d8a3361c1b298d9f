// Lists what a machine would download, by cut and format, from the server's own manifest.
#pragma once

#include <string>

#include "models/model.h"
#include "wire/protocol.h"

namespace split::edge {

// A Markdown table: a line for each of the usual cuts, a column for each format that the server
// has, in decimal bytes. README.md holds the bundled model's.
std::string download_table(const Model& model, const wire::ModelInfo& info);

}  // namespace split::edge
