// Weight blobs on this machine's disk, by their SHA-256: root/sha256/ab/<hex>, and <hex>.part while
// one is being put together. Nothing half-written ever has a final name; a complete cache is only
// read; any number of processes may share one. Which bytes are good is for blob_load.h to say.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "wire/protocol.h"

namespace split::edge {

// The directory of --cache, or that of base/cache_dir.h. Throws Error(kIo) when there is none.
std::filesystem::path cache_root(const std::string& flag,
                                 const std::function<const char*(const char*)>& environment);

// Explains an error of the cache's disk, with a way out.
Error disk_error(const Error& error);

// Immutable; any thread.
class ShardCache {
 public:
  explicit ShardCache(std::filesystem::path root) : root_(std::move(root)) {}

  const std::filesystem::path& root() const { return root_; }
  std::filesystem::path path_of(std::string_view sha256) const;

  // Makes the folder where it is not there. Throws Error(kIo) that says a way out.
  void make() const;
  // The same, and throws where nothing is in it and nothing can be put there.
  void expect_usable() const;

  struct Entry {
    std::filesystem::path path;
    std::string sha256;
    bool partial = false;
    uint64_t bytes = 0;                    // on disk
    std::filesystem::file_time_type used;  // last
  };
  // Those used longest ago first.
  std::vector<Entry> entries() const;
  // False when it is a part that somebody works on, or cannot be removed.
  bool remove(const Entry& entry) const;
  // Removes entries, those used longest ago first and none of `needed`, until `bytes` and what is
  // left are within `limit` or nothing more can go. Returns what is left.
  uint64_t shrink(uint64_t limit, uint64_t bytes, const std::set<std::string>& needed) const;

  // Says that it was used now, as far as that can be said.
  void touch(const std::filesystem::path& path) const;

 private:
  std::filesystem::path root_;
};

}  // namespace split::edge
