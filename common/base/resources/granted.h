// The system's limits for this process: the share of the machine that its control groups (cgroups,
// version 1 or 2) leave to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace split {

// The kernel's files; tests pass folders of their own.
struct SystemFiles {
  // Written out: GCC 13 destroys a member of an aggregate twice when the next one's construction
  // fails (seen under AddressSanitizer).
  SystemFiles() : SystemFiles("/proc", "/sys/fs/cgroup") {}
  SystemFiles(std::filesystem::path proc, std::filesystem::path cgroup)
      : proc(std::move(proc)), cgroup(std::move(cgroup)) {}

  std::filesystem::path proc, cgroup;
};

// Processors that this process may keep busy: at most its affinity, and the CPU quota of each group
// around it, rounded up. At least 1.
unsigned granted_processors(const SystemFiles& files = {});

// Bytes of memory that this process may use: at most the machine's, and the limit of each group
// around it.
uint64_t granted_memory(const SystemFiles& files = {});

// Bytes of this process's own memory, without mapped files.
uint64_t resident_memory(const SystemFiles& files = {});

// Bytes that requests may hold: the granted memory less what this process holds now, `reserved`
// bytes that it will hold, and an eighth for stacks, connections and the allocator. At least 64
// MiB.
uint64_t memory_left_for_requests(uint64_t reserved, const SystemFiles& files = {});

// Lets the allocator return memory that is free at the end of an arena. By default it keeps twice
// the largest block ever freed, in each arena: 64 MB of each after large bodies. Call once, early.
void keep_little_free_memory();
// Returns what the allocator kept nevertheless. Takes milliseconds.
void return_free_memory();
inline constexpr int kOwnMapping = 4 << 20;  // bytes of an allocation that gets a mapping of its
                                             // own

}  // namespace split
