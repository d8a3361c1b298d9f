// Blobs that are made from others (another number format), kept on disk: made once, named by the
// sha256 of their bytes, and mapped. Makes a file that does not match its name again. Keeps blobs
// in memory if it cannot write. Does not interpret blobs.
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
  // An empty `dir` means memory; so does a directory that cannot be made, with a line in the log.
  explicit BlobCache(std::filesystem::path dir);

  // Returns the bytes that keep() got under this key before; nullopt if they are missing or
  // damaged.
  std::optional<KeptBlob> find(const std::string& key) const;
  // Stores the pieces as one file. `key` is a file's name: what the blob is made of, and how.
  KeptBlob keep(const std::string& key, std::span<const Bytes> pieces);

 private:
  std::filesystem::path path_of(const std::string& sha256) const;
  std::filesystem::path key_path(const std::string& key) const;
  void to_memory(const std::string& why);

  mutable std::mutex mutex_;
  std::filesystem::path dir_;
};

}  // namespace split::cloud
