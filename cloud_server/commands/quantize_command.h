// "cloud_server quantize": writes a checkpoint with its matrices in blocks, as a smaller one to
// keep, serve or copy.
#pragma once

#include <string>
#include <vector>

namespace split::cloud {

// `arguments` without "quantize". Returns the exit code. Throws Error(kInput, kNotFound, kShape)
// for flags and checkpoints, Error(kIo) if --out cannot be written: then nothing is left there.
int quantize_command(const std::vector<std::string>& arguments);

}  // namespace split::cloud
