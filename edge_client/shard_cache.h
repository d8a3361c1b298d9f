// Weight blobs on this machine's disk, by their SHA-256: nothing is used before its size and hash
// are what its name says, a bad file is replaced by itself, and nothing half-written ever has its
// final name. A complete cache is only read. Any number of processes may share one.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "edge_client/progress.h"
#include "edge_client/remote.h"
#include "edge_client/retry.h"

namespace split::edge {

// $XDG_CACHE_HOME/splitcompute, or ~/.cache/splitcompute. Throws Error(kIo) when neither is known.
std::filesystem::path default_cache_root(
    const std::function<const char*(const char*)>& environment);

struct FetchCounts {
  uint64_t downloaded = 0;  // bytes that came over the wire
  uint64_t from_cache = 0;
};

// One thread at a time.
class ShardCache {
 public:
  explicit ShardCache(std::filesystem::path root) : root_(std::move(root)) {}

  std::filesystem::path path_of(std::string_view sha256) const;  // root/sha256/ab/<hex>

  // The blob, mapped and verified; nothing when it is not there. A file that is not what its name
  // says is removed.
  std::optional<MappedFile> find(const wire::BlobInfo& blob) const;

  // All of them, in order; what is missing is downloaded and kept. Throws Error(kIo) when it cannot
  // be stored, Error(kIntegrity) when the server's bytes are not what it promised, RemoteError.
  std::vector<MappedFile> fetch(Remote& remote, std::span<const wire::BlobInfo> blobs,
                                const RetryOptions& retry, Interrupt& interrupt,
                                const ProgressTo& progress_to, FetchCounts& counts) const;

 private:
  MappedFile download(Remote& remote, const wire::BlobInfo& blob, Retry& retry, Progress& progress,
                      FetchCounts& counts) const;

  std::filesystem::path root_;
};

}  // namespace split::edge
