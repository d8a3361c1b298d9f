#include "base/resources/granted.h"

#include <malloc.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "base/bytes.h"

namespace split {
namespace {

namespace fs = std::filesystem;

std::optional<std::string> first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return {};
  return line;
}

std::optional<uint64_t> number_in(const fs::path& path) {
  const auto line = first_line(path);
  return line ? parse_u64(*line, 0, UINT64_MAX) : std::nullopt;
}

// Returns the bytes of a line "NAME   16384 kB".
std::optional<uint64_t> kib_of(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t digits = line.find_first_of("0123456789");
    if (digits == std::string::npos) return {};
    const auto kib =
        parse_u64(line.substr(digits, line.find(' ', digits) - digits), 0, UINT64_MAX >> 10);
    return kib ? std::optional(*kib << 10) : std::nullopt;
  }
  return {};
}

// Calls `visit` with the folder of this process's group for a controller and those of all groups
// around it. Inside a container the kernel may give the host's name of a group, which does not
// exist there; existing folders still count.
void for_each_group(const SystemFiles& files, std::string_view controller,
                    const std::function<void(const fs::path&)>& visit) {
  std::ifstream groups(files.proc / "self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/a/b", or "0::/a/b" (v2)
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool second_version = names == ",,";
    if (!second_version && names.find(cat(",", controller, ",")) == std::string::npos) continue;
    const fs::path root = second_version ? files.cgroup : files.cgroup / controller;
    fs::path group = fs::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      visit(root / group);
      if (group.empty()) break;
    }
  }
}

}  // namespace

unsigned granted_processors(const SystemFiles& files) {
  unsigned granted = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) {
    granted = std::min(granted, static_cast<unsigned>(std::max(1, CPU_COUNT(&allowed))));
  }
  const auto limit = [&](uint64_t quota, uint64_t period) {  // both in microseconds
    if (quota == 0 || period == 0) return;
    const uint64_t whole = quota / period + (quota % period != 0);
    granted = static_cast<unsigned>(std::min<uint64_t>(granted, whole));
  };
  for_each_group(files, "cpu", [&](const fs::path& group) {
    if (const auto max = first_line(group / "cpu.max")) {  // "50000 100000", or "max 100000"
      const size_t space = max->find(' ');
      const auto quota = parse_u64(max->substr(0, space), 1, UINT64_MAX);
      const auto period = space == std::string::npos
                              ? std::nullopt
                              : parse_u64(max->substr(space + 1), 1, UINT64_MAX);
      if (quota && period) limit(*quota, *period);
    }
    const auto quota = number_in(group / "cpu.cfs_quota_us");  // -1: none
    const auto period = number_in(group / "cpu.cfs_period_us");
    if (quota && period) limit(*quota, *period);
  });
  return granted;
}

uint64_t granted_memory(const SystemFiles& files) {
  uint64_t granted = kib_of(files.proc / "meminfo", "MemTotal:").value_or(UINT64_MAX);
  for_each_group(files, "memory", [&](const fs::path& group) {
    for (const char* file : {"memory.max", "memory.limit_in_bytes"}) {
      if (const auto bytes = number_in(group / file)) granted = std::min(granted, *bytes);
    }
  });
  return granted;
}

uint64_t resident_memory(const SystemFiles& files) {
  return kib_of(files.proc / "self/status", "RssAnon:").value_or(0);
}

void keep_little_free_memory() {
  // Each thread's heap keeps up to this much at its end, where malloc_trim() does not look; and
  // small freed pieces, unless they are joined when freed.
  ::mallopt(M_TRIM_THRESHOLD, 512 << 10);
  ::mallopt(M_MXFAST, 0);
  ::mallopt(M_MMAP_THRESHOLD, kOwnMapping);
}

void return_free_memory() { ::malloc_trim(0); }

}  // namespace split
