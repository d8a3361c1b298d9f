// "cloud_server quantize": a checkpoint written once more with its matrices in blocks, for whoever
// wants to keep, serve or copy the small one.
#pragma once

#include <string>
#include <vector>

namespace split::cloud {

// The arguments behind the word; returns the exit code. Throws Error(kInput, kNotFound, kShape) for
// flags and checkpoints, Error(kIo) when --out cannot be written: then there is nothing there.
int quantize_command(const std::vector<std::string>& arguments);

}  // namespace split::cloud
