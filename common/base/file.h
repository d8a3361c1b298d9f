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

// Adds one to an eventfd. Retries until it is done or a non-blocking counter is full: nothing else
// wakes its reader.
void wake_reader(const Fd& event);

// Opens descriptors 0..2 if the caller has closed them, so that no file or socket of ours gets
// their numbers; using them is an error as before. Call first in main().
void hold_standard_streams();

// Opens a regular file in a place where others may have put something else: follows no link, never
// blocks. Throws Error(kIo) that names a link, a FIFO, a directory; returns no descriptor, and
// errno, for any other reason. `flags`: O_RDONLY, or O_RDWR with O_CREAT.
Fd open_regular_only(const std::filesystem::path& path, int flags);

// A file as the system describes it.
struct FileStatus {
  bool regular = false;
  uint64_t bytes = 0;
  uint64_t on_disk = 0;   // bytes on the disk: holes take none
  uint64_t identity = 0;  // identifies the file whatever its names
  std::filesystem::file_time_type written;
};
// Returns a path's status, through links; nullopt if there is none, or it cannot be read.
std::optional<FileStatus> file_status(const std::filesystem::path& path);
std::optional<FileStatus> file_status(const Fd& fd);

struct FoundFile {
  std::filesystem::path path;
  FileStatus status;
};
// Returns the regular files below a folder, unordered, without following links; skips what it
// cannot look at.
std::vector<FoundFile> files_below(const std::filesystem::path& folder);

// Creates a folder and its missing parents.
std::error_code make_folders(const std::filesystem::path& folder);
// Returns nullopt if that is unknown.
std::optional<uint64_t> free_bytes(const std::filesystem::path& folder);
// Whether this process may create files in the folder; errno says why not.
bool may_write_to(const std::filesystem::path& folder);
// Returns false if there was none, or it stays.
bool remove_file(const std::filesystem::path& path);
// Sets a file's time of writing to now, if possible.
void touch_file(const std::filesystem::path& path);

// Warns if a secret can be read by others than the file's owner and group: one line that names it.
void warn_if_others_read(const std::filesystem::path& path);

// A file mapped read-only. The bytes stay valid, at one address, for the life of the object, even
// after a move; except pages that a truncated file no longer has, or a disk cannot read: touching
// one raises SIGBUS (program/lost_pages.h).
class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error(kNotFound) if there is no such file, Error(kIo) if it cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  // Maps an open file, at its present size.
  MappedFile(const Fd& fd, std::string_view what);
  // Makes a file without a name, in memory. Throws Error(kIo) if there is no room.
  static MappedFile in_memory(std::span<const Bytes> pieces);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  Bytes bytes() const { return {static_cast<const std::byte*>(address_), size_}; }

  // Returns the name of the file whose map has `address`, else null. Safe in a signal's handler.
  static const char* name_at(const void* address) noexcept;

  // Advises that a part of a map will be read soon: the disk begins to read it.
  static void will_need(Bytes bytes);
  // Frees the memory of a part of a map until it is read again. Returns false if only the
  // destructor can free it.
  static bool let_go(Bytes bytes);
  // Copies a part of a map from its file, so that no page of the map becomes memory of this
  // process; or of other memory, as it is. Throws Error(kIo).
  static void read(Bytes part, std::span<std::byte> out);
  // Whether maps occupy this process's memory while they exist: in a tab.
  static bool is_memory();

 private:
  MappedFile(const Fd& fd, size_t size, std::string_view what);
  void unmap() noexcept;

  void* address_ = nullptr;
  size_t size_ = 0;
};

// Reads a whole file. Throws Error(kNotFound), Error(kIo), or Error(kInput) if it is longer than
// `limit` bytes.
std::string read_file(const std::filesystem::path& path, uint64_t limit);

// A new file under a temporary name beside `path`; commit() makes it durable and renames it, else
// the destructor removes it. Throws Error(kIo) with the system's reason.
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

// Makes a rename in the directory durable. A directory that cannot be synced is not an error.
void sync_directory(const std::filesystem::path& directory);

// Removes temporary files of an AtomicFile of this path that killed processes left: not written to
// for an hour.
void remove_leftovers(const std::filesystem::path& path);

// Writes everything. Throws Error(kIo) with the system's reason, after `what`.
void write_all(const Fd& fd, Bytes bytes, std::string_view what);

// Returns "Permission denied" for EACCES and so on; thread-safe.
std::string errno_text(int error);
// Returns the error of a failed call for the file `what`: kBusy if the process or the machine has
// no descriptors left, else kIo.
Error file_error(std::string_view what, int error);
// Returns the descriptor, or throws file_error() if it is none.
Fd expect_fd(int fd, std::string_view what);

}  // namespace split
