#include "edge_client/weights/blobs/shard_cache.h"

#include <algorithm>
#include <cerrno>

#include "base/cache_dir.h"
#include "base/sort.h"
#include "base/system/part_file.h"

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
  const std::error_code error = make_folders(root_);
  if (!error) return;
  throw disk_error(
      Error(ErrorKind::kIo, cat("cannot write to ", root_.string(), ": ", error.message())));
}

void ShardCache::expect_usable() const {
  make();
  if (may_write_to(root_) || !entries().empty()) return;
  throw disk_error(
      Error(ErrorKind::kIo, cat("cannot write to ", root_.string(), ": ", errno_text(errno))));
}

std::vector<ShardCache::Entry> ShardCache::entries() const {
  constexpr size_t kDigits = 64;
  std::vector<Entry> entries;
  for (FoundFile& file : files_below(root_ / "sha256")) {
    const std::string name = file.path.filename().string();
    if (!is_lower_hex(std::string_view(name).substr(0, kDigits), kDigits)) continue;
    Entry& entry = entries.emplace_back();
    entry.path = std::move(file.path);
    entry.sha256 = name.substr(0, kDigits);
    entry.partial = name.size() > kDigits;
    // A part file uses disk space only for what was written.
    entry.bytes = entry.partial ? file.status.on_disk : file.status.bytes;
    entry.used = file.status.written;
  }
  sort_stably(entries, [](const Entry& a, const Entry& b) {
    return std::tie(a.used, a.path) < std::tie(b.used, b.path);
  });
  return entries;
}

bool ShardCache::remove(const Entry& entry) const {
  if (!entry.path.string().ends_with(kPartSuffix)) return remove_file(entry.path);
  try {
    auto part = PartFile::take(path_of(entry.sha256), 0);
    if (!part) return false;
    part->discard();
    return true;
  } catch (const Error&) {  // a read-only cache
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

// Fails silently in a read-only cache.
void ShardCache::touch(const fs::path& path) const { touch_file(path); }

}  // namespace split::edge
