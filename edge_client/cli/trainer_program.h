// The program edge_train, which `edge_client train` starts. It is built and installed apart: most
// edges never train.
#pragma once

#include <filesystem>
#include <span>
#include <string>

namespace split::edge {

// Finds edge_train beside this program, or in libexec/splitcompute beside its folder. Returns an
// empty path if it is in neither.
std::filesystem::path trainer_program();

// Runs edge_train with these arguments in place of this program. Returns only by an
// Error(kIo).
int become_trainer(std::span<const std::string> arguments);

// Runs edge_train and waits. Returns its output's last line; throws it as Error(kDevice) if it
// fails.
std::string ask_trainer(const std::filesystem::path& program,
                        std::span<const std::string> arguments);

}  // namespace split::edge
