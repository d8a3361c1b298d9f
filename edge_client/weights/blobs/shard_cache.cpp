#include "edge_client/weights/blobs/shard_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/cache_dir.h"
#include "edge_client/weights/blobs/part_file.h"

namespace split::edge {

namespace fs = std::filesystem;

Error disk_error(const Error& error) {
  if (error.kind() != ErrorKind::kIo) return error;
  return {ErrorKind::kIo, cat("[cache] ", error.what(),
                              "; --cache DIR names another place, --cut cloud needs none")};
}

fs::path cache_root(const std::string& flag,
                    const std::function<const char*(const char*)>& environment) {
  if (!flag.empty()) return flag;
  if (auto dir = cache_dir(environment)) return std::move(*dir);
  throw Error(ErrorKind::kIo,
              "[cache] neither XDG_CACHE_HOME nor HOME is set: give --cache DIR, or --cut cloud");
}

fs::path ShardCache::path_of(std::string_view sha256) const {
  return root_ / "sha256" / sha256.substr(0, 2) / sha256;
}

void ShardCache::make() const {
  std::error_code error;
  fs::create_directories(root_, error);
  if (!error) return;
  throw disk_error(
      Error(ErrorKind::kIo, cat("cannot write to ", root_.string(), ": ", error.message())));
}

void ShardCache::expect_usable() const {
  make();
  if (::access(root_.c_str(), W_OK | X_OK) == 0 || !entries().empty()) return;
  throw disk_error(
      Error(ErrorKind::kIo, cat("cannot write to ", root_.string(), ": ", errno_text(errno))));
}

std::vector<ShardCache::Entry> ShardCache::entries() const {
  constexpr size_t kDigits = 64;
  std::vector<Entry> entries;
  std::error_code error;
  for (fs::recursive_directory_iterator at(root_ / "sha256", error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    struct stat status {};
    if (::lstat(at->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    if (!is_lower_hex(std::string_view(name).substr(0, kDigits), kDigits)) continue;
    Entry& entry = entries.emplace_back();
    entry.path = at->path();
    entry.sha256 = name.substr(0, kDigits);
    entry.partial = name.size() > kDigits;
    // A part file takes room only for what was written.
    entry.bytes = entry.partial ? static_cast<uint64_t>(status.st_blocks) * 512
                                : static_cast<uint64_t>(status.st_size);
    std::error_code ignored;
    entry.used = fs::last_write_time(at->path(), ignored);
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  return entries;
}

bool ShardCache::remove(const Entry& entry) const {
  std::error_code error;
  if (!entry.path.string().ends_with(kPartSuffix)) return fs::remove(entry.path, error);
  try {
    auto part = PartFile::take(path_of(entry.sha256), 0);
    if (!part) return false;
    part->discard();
    return true;
  } catch (const Error&) {  // a cache that can only be read
    return false;
  }
}

uint64_t ShardCache::shrink(uint64_t limit, uint64_t bytes,
                            const std::set<std::string>& needed) const {
  const std::vector<Entry> all = entries();
  uint64_t kept = bytes;
  for (const Entry& entry : all) kept += entry.bytes;
  for (const Entry& entry : all) {
    if (kept <= limit) break;
    if (!needed.contains(entry.sha256) && remove(entry)) kept -= entry.bytes;
  }
  return kept;
}

void ShardCache::touch(const fs::path& path) const {
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // not possible in a cache that is only read
}

}  // namespace split::edge
