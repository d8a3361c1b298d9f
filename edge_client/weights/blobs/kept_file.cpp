#include "edge_client/weights/blobs/kept_file.h"

#include <fcntl.h>

#include <cerrno>

#include "base/system/part_file.h"
#include "edge_client/weights/blobs/shard_cache.h"

namespace split::edge {

namespace fs = std::filesystem;

std::optional<std::string> read_kept(const fs::path& path, uint64_t limit) {
  const Fd fd = open_regular_only(path, O_RDONLY);
  if (!fd) {
    if (errno == ENOENT || errno == ENOTDIR) return std::nullopt;
    throw disk_error(file_error(path.string(), errno));
  }
  const auto status = file_status(fd);
  if (!status || status->bytes > limit) return std::nullopt;
  std::string text(static_cast<size_t>(status->bytes), '\0');
  const Bytes read = read_at(fd, 0, std::as_writable_bytes(std::span(text)), path.string());
  text.resize(read.size());
  return text;
}

void write_kept(const fs::path& path, std::string_view text) {
  make_folders(path.parent_path());
  // The rename replaces anything else there.
  write_file(path, std::as_bytes(std::span(text)));
}

}  // namespace split::edge
