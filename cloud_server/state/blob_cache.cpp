#include "cloud_server/state/blob_cache.h"

#include "base/log.h"

namespace split::cloud {

namespace fs = std::filesystem;

BlobCache::BlobCache(fs::path dir) : dir_(std::move(dir)) {
  if (dir_.empty()) return;
  std::error_code error;
  fs::create_directories(dir_ / "made", error);
  if (error) to_memory(cat(dir_.string(), ": ", error.message()));
}

void BlobCache::to_memory(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (dir_.empty()) return;
  log_warning(cat("[blobs] ", why, "; converted weights are kept in memory (--blob-cache DIR)"));
  dir_.clear();
}

fs::path BlobCache::path_of(const std::string& sha256) const {
  const std::lock_guard lock(mutex_);
  return dir_.empty() ? fs::path() : dir_ / "sha256" / sha256.substr(0, 2) / sha256;
}

fs::path BlobCache::key_path(const std::string& key) const {
  const std::lock_guard lock(mutex_);
  return dir_.empty() ? fs::path() : dir_ / "made" / key;
}

std::optional<KeptBlob> BlobCache::find(const std::string& key) const {
  const fs::path named = key_path(key);
  if (named.empty()) return std::nullopt;
  try {
    const std::string sha256 = read_file(named, 64);
    if (!is_lower_hex(sha256, 64)) return std::nullopt;
    KeptBlob blob;
    blob.file = MappedFile(path_of(sha256));
    wire::BlobSummer summer;
    summer.update(blob.file.bytes());
    blob.sums = summer.finish();
    if (blob.sums.sha256 == sha256) return blob;
  } catch (const Error&) {  // missing or unreadable: made again
  }
  return std::nullopt;
}

KeptBlob BlobCache::keep(const std::string& key, std::span<const Bytes> pieces) {
  wire::BlobSummer summer;
  for (const Bytes piece : pieces) summer.update(piece);
  KeptBlob blob;
  blob.sums = summer.finish();
  const fs::path path = path_of(blob.sums.sha256), named = key_path(key);
  if (!path.empty() && !named.empty()) {
    try {
      std::error_code error;
      fs::create_directories(path.parent_path(), error);  // writing reports the error
      remove_leftovers(path);
      AtomicFile file(path);
      for (const Bytes piece : pieces) file.append(piece);
      file.commit();
      write_file(named, as_bytes_of(blob.sums.sha256));
      blob.file = MappedFile(path);
      return blob;
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::kBusy) throw;  // temporary
      to_memory(error.what());
    }
  }
  blob.file = MappedFile::in_memory(pieces);
  return blob;
}

}  // namespace split::cloud
