// Limits that the system sets this process: of what the machine has, the part that its control
// groups (cgroups, version 1 or 2) leave to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <utility>

namespace split {

// Where the kernel says so; tests give folders of their own.
struct SystemFiles {
  // Written out: GCC 13 destroys a member of an aggregate twice when the next one's construction
  // fails (seen under AddressSanitizer).
  SystemFiles() : SystemFiles("/proc", "/sys/fs/cgroup") {}
  SystemFiles(std::filesystem::path proc, std::filesystem::path cgroup)
      : proc(std::move(proc)), cgroup(std::move(cgroup)) {}

  std::filesystem::path proc, cgroup;
};

// Processors that this process may keep busy: at most those that it may run on, and the CPU quota
// of each group around it, rounded up. At least 1.
unsigned granted_processors(const SystemFiles& files = {});

// Bytes that this process may have in memory: at most the machine's, and the limit of each group
// around it.
uint64_t granted_memory(const SystemFiles& files = {});

// Bytes that this process holds in memory of its own; mapped files are not among them.
uint64_t resident_memory(const SystemFiles& files = {});

// Bytes that requests may hold: of the grant, what this process holds now, `reserved` bytes that it
// will hold, and an eighth for stacks, connections and the allocator left aside. At least 64 MiB.
uint64_t memory_left_for_requests(uint64_t reserved, const SystemFiles& files = {});

// Lets the allocator return memory that is free at the end of an arena. By itself it keeps twice
// the largest block that was ever freed, in each arena: 64 MB of each after large bodies. Once,
// early.
void keep_little_free_memory();
// Returns what the allocator kept even so. Takes milliseconds.
void return_free_memory();
inline constexpr int kOwnMapping = 4 << 20;  // of bytes: then an allocation that large is one

}  // namespace split
