#include "base/system/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace split {
namespace {

namespace fs = std::filesystem;

fs::path part_of(const fs::path& path) { return path.string() + std::string(kPartSuffix); }

Error failed(const fs::path& path) { return file_error(path.string(), errno); }

}  // namespace

Bytes read_at(const Fd& fd, uint64_t offset, std::span<std::byte> out, const std::string& what) {
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t n =
        ::pread(fd.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw failed(what);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return out.first(done);
}

std::optional<PartFile> PartFile::take(const fs::path& path, uint64_t bytes) {
  const fs::path part = part_of(path);
  for (;;) {
    Fd fd = open_regular_only(part, O_RDWR | O_CREAT);
    if (!fd) throw failed(part);
    while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno == EWOULDBLOCK) return std::nullopt;
      if (errno != EINTR) throw failed(part);
    }
    struct stat ours {
    }, named{};
    if (::fstat(fd.get(), &ours) != 0) throw failed(part);
    // Between the two calls its last holder may have renamed or removed it.
    if (::lstat(part.c_str(), &named) != 0 || named.st_ino != ours.st_ino) continue;
    const bool resumed = ours.st_size > 0;
    if (static_cast<uint64_t>(ours.st_size) != bytes &&
        ::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
      const Error error = failed(part);
      ::unlink(part.c_str());
      throw error;
    }
    return PartFile(std::move(fd), path, resumed);
  }
}

MappedFile PartFile::map() const { return MappedFile(fd_, part_of(path_).string()); }

void PartFile::write(uint64_t offset, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw failed(part_of(path_));
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
}

void PartFile::let_go() {}  // has no memory of its own

void PartFile::commit() {
  if (::fsync(fd_.get()) != 0 || ::rename(part_of(path_).c_str(), path_.c_str()) != 0) {
    throw failed(part_of(path_));
  }
  sync_directory(path_.parent_path());
  fd_.reset();
}

// A map keeps the lock after the descriptor is closed.
void PartFile::release() {
  if (fd_) ::flock(fd_.get(), LOCK_UN);
  fd_.reset();
}

void PartFile::discard() {
  if (fd_) ::unlink(part_of(path_).c_str());
  fd_.reset();
}

}  // namespace split
