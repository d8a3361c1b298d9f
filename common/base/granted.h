// What the system grants this process: of what the machine has, the part that the process's control
// groups (cgroups, version 1 or 2) leave to it.
#pragma once

#include <cstdint>
#include <filesystem>

namespace split {

// Where the kernel says so; tests give folders of their own.
struct SystemFiles {
  std::filesystem::path proc = "/proc", cgroup = "/sys/fs/cgroup";
};

// Processors that this process may keep busy: at most those that it may run on, and the CPU quota
// of each group around it, rounded up. At least 1.
unsigned granted_processors(const SystemFiles& files = {});

// Bytes that this process may have in memory: at most the machine's, and the limit of each group
// around it.
uint64_t granted_memory(const SystemFiles& files = {});

}  // namespace split
