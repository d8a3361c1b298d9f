// A limit of memory around a process of a test.
#pragma once

#include <fstream>
#include <optional>

#include "support/programs.h"

namespace split::test {

// A group of this machine's that bounds the memory of what runs in it; gone with this object. Where
// no group can be made, a bound on the process's data of the same size, which is said.
class MemoryGroup {
 public:
  explicit MemoryGroup(uint64_t limit) : limit_(limit) {
    for (const auto& [root, file] : {std::pair{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"},
                                     std::pair{"/sys/fs/cgroup", "memory.max"}}) {
      const std::filesystem::path path = cat(root, "/split-test-", ::getpid());
      std::error_code error;
      if (!std::filesystem::create_directory(path, error)) continue;
      std::ofstream(path / file) << limit;
      std::ifstream back(path / file);
      uint64_t now = 0;
      if (back >> now && now == limit) {
        path_ = path;
        return;
      }
      std::filesystem::remove(path, error);
    }
    std::printf("no memory group can be made here: RLIMIT_DATA of %llu bytes instead\n",
                static_cast<unsigned long long>(limit));
  }
  ~MemoryGroup() {
    std::error_code ignored;
    if (path_) std::filesystem::remove(*path_, ignored);
  }
  MemoryGroup(const MemoryGroup&) = delete;
  MemoryGroup& operator=(const MemoryGroup&) = delete;

  explicit operator bool() const { return path_.has_value(); }  // it could be made
  Arguments around(const Arguments& command) const {
    Arguments all = {"sh", "-c"};
    if (path_) {
      all.push_back("echo $$ > \"$0\"/cgroup.procs && exec \"$@\"");
      all.push_back(path_->string());
    } else {
      all.push_back("ulimit -d \"$0\" && exec \"$@\"");
      all.push_back(cat(limit_ >> 10));
    }
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }

 private:
  const uint64_t limit_;
  std::optional<std::filesystem::path> path_;
};

}  // namespace split::test
