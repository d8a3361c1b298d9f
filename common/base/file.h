// Files: read-only memory maps, whole reads with a cap, writes that are either complete or not
// there, and what stands in a folder. Code that also runs in a browser's tab knows a disk by this
// alone.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"

namespace split {

// An owned file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(other.release()) {}
  Fd& operator=(Fd&& other) noexcept;
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  int release();
  void reset();

 private:
  int fd_ = -1;
};

// Adds one to an eventfd, again until it is done or, where it may not wait, the count is full:
// nothing else wakes who waits for it.
void wake_reader(const Fd& event);

// Takes descriptors 0..2 where the caller has closed them, so that no file or socket of ours stands
// where output goes; using them is an error as before. The first thing in main().
void hold_standard_streams();

// Opens a regular file of a place where others may have put something else: follows no link, waits
// for nobody. Throws Error(kIo) that names a link, a FIFO, a directory; no descriptor, and errno,
// for any other reason. `flags`: O_RDONLY, or O_RDWR with O_CREAT.
Fd open_regular_only(const std::filesystem::path& path, int flags);

// A file as the system describes it.
struct FileStatus {
  bool regular = false;
  uint64_t bytes = 0;
  uint64_t on_disk = 0;   // bytes that it takes there: those that were written
  uint64_t identity = 0;  // of the file itself, whatever its names are
  std::filesystem::file_time_type written;
};
// A path's, through links; nothing where there is none, or it cannot be looked at.
std::optional<FileStatus> file_status(const std::filesystem::path& path);
std::optional<FileStatus> file_status(const Fd& fd);

struct FoundFile {
  std::filesystem::path path;
  FileStatus status;
};
// The regular files below a folder, links not followed, in no order; as many as can be looked at.
std::vector<FoundFile> files_below(const std::filesystem::path& folder);

// A folder and those around it, where they are not there.
std::error_code make_folders(const std::filesystem::path& folder);
// Nothing where that cannot be said.
std::optional<uint64_t> free_bytes(const std::filesystem::path& folder);
// True where this process may make files in it; else errno says why.
bool may_write_to(const std::filesystem::path& folder);
// False where there was none, or it stays.
bool remove_file(const std::filesystem::path& path);
// Says that a file was written now, as far as that can be said.
void touch_file(const std::filesystem::path& path);

// Warns where others than the file's owner and group may read a secret: one line that names it.
void warn_if_others_read(const std::filesystem::path& path);

// A file mapped read-only. The bytes stay valid, at one address, for the life of the object, also
// after a move, but for pages that a file which was cut short no longer has, or a disk cannot read:
// touching one raises SIGBUS (program/lost_pages.h).
class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error(kNotFound) when there is no such file, Error(kIo) when it cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  // An open file, at the size that it has now.
  MappedFile(const Fd& fd, std::string_view what);
  // A file without a name, in memory. Throws Error(kIo) when there is no room.
  static MappedFile in_memory(std::span<const Bytes> pieces);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  Bytes bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

  // The file's name where `address` is inside of a map, else null. Safe in a signal's handler.
  static const char* name_at(const void* address) noexcept;

  // Part of a map that will be read soon: a disk begins with it.
  static void will_need(Bytes bytes);
  // Part of a map that will hardly be read again: it takes no memory of this process until it is.
  // False where only the map's end gives memory back.
  static bool let_go(Bytes bytes);
  // Whether a map takes memory of this process for as long as it is there: in a tab.
  static bool is_memory();

 private:
  MappedFile(const Fd& fd, size_t size, std::string_view what);
  void unmap() noexcept;

  void* address_ = nullptr;
  size_t size_ = 0;
};

// The whole file as text. Throws Error(kNotFound), Error(kIo), or Error(kInput) when it is longer
// than `limit` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t limit);

// A new file under a temporary name beside `path`; commit() makes it durable and gives it its name,
// and without commit() it is removed. Throws Error(kIo) with the system's reason.
class AtomicFile {
 public:
  explicit AtomicFile(std::filesystem::path path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void append(Bytes bytes);
  void commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  Fd fd_;
};

void write_file(const std::filesystem::path& path, Bytes bytes);

// Makes a rename in it durable. A directory that cannot be synced is not an error.
void sync_directory(const std::filesystem::path& directory);

// Removes what killed processes left of an AtomicFile of this path: temporary files not written to
// for an hour.
void remove_leftovers(const std::filesystem::path& path);

// All of it. Throws Error(kIo) with the system's reason, beginning with `what`.
void write_all(const Fd& fd, Bytes bytes, std::string_view what);

// "Permission denied" for EACCES and so on; thread-safe.
std::string errno_text(int error);
// A call for the file `what` failed: kBusy where the process or the machine has no descriptors
// left, else kIo.
Error file_error(std::string_view what, int error);
// Returns what such a call gave; throws that error where it is none.
Fd expect_fd(int fd, std::string_view what);

}  // namespace split
