// Weight blobs on this machine's disk, by their SHA-256: root/sha256/ab/<hex>, and <hex>.part while
// one is being assembled. No half-written file has a final name; a complete cache is only read; any
// number of processes may share one. blob_load.h checks which bytes are good.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/file.h"
#include "wire/protocol.h"

namespace split::edge {

// Returns the directory of --cache, or base/cache_dir.h's. Throws Error(kIo) if there is none.
std::filesystem::path cache_root(const std::string& flag,
                                 const std::function<const char*(const char*)>& environment);

// Returns an error of the cache's disk with a way out.
Error disk_error(const Error& error);

// Immutable; any thread.
class ShardCache {
 public:
  explicit ShardCache(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path path_of(std::string_view sha256) const;

  // Creates the folder if needed. Throws Error(kIo) with a way out.
  void make() const;
  // Creates the folder; throws if it is empty and cannot be written.
  void expect_usable() const;

  struct Entry {
    std::filesystem::path path;
    std::string sha256;
    bool partial = false;
    uint64_t bytes = 0;                    // on disk
    std::filesystem::file_time_type used;  // last
  };
  // Returns the entries, the least recently used first.
  std::vector<Entry> entries() const;
  // Returns false for a part that is in use, or a file that cannot be removed.
  bool remove(const Entry& entry) const;
  // Removes entries, the least recently used first and none of `needed`, until the rest and `bytes`
  // are within `limit` or nothing more can go. Returns the bytes of the rest.
  uint64_t shrink(uint64_t limit, uint64_t bytes, const std::set<std::string>& needed) const;

  // Sets its time of use to now, if possible.
  void touch(const std::filesystem::path& path) const;

 private:
  std::filesystem::path root_;
};

}  // namespace split::edge
