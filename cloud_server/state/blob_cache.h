// Blobs that are made from others (another number format), kept on disk: made once, named by the
// sha256 of their bytes, and mapped. A file that is not what its name says is made again. Where
// nothing can be written they are kept in memory. Knows nothing of what a blob holds.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "wire/chunks.h"

namespace split::cloud {

struct KeptBlob {
  MappedFile file;
  wire::BlobSums sums;
};

// Any number of threads, and any number of processes in one directory.
class BlobCache {
 public:
  // An empty `dir` is memory. A directory that cannot be made is too, with one line in the log.
  explicit BlobCache(std::filesystem::path dir);

  // Finds the bytes that keep() got under this key before; nothing when they are not there or
  // damaged.
  std::optional<KeptBlob> find(const std::string& key) const;
  // The pieces as one file. `key` is a file's name: what the blob is made of, and how.
  KeptBlob keep(const std::string& key, std::span<const Bytes> pieces);

 private:
  std::filesystem::path path_of(const std::string& sha256) const;
  std::filesystem::path key_path(const std::string& key) const;
  void to_memory(const std::string& why);

  mutable std::mutex mutex_;
  std::filesystem::path dir_;
};

}  // namespace split::cloud
