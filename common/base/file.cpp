#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/log.h"
#include "base/system/part_file.h"

namespace split {

std::string errno_text(int error) { return std::generic_category().message(error); }

Error file_error(std::string_view what, int error) {
  if (error == ENFILE) return {ErrorKind::kBusy, "[file] this machine has too many open files"};
  if (error != EMFILE) return {ErrorKind::kIo, cat("[file] ", what, ": ", errno_text(error))};
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  return {ErrorKind::kBusy, cat("[file] this process has too many open files: it may have ",
                                limit.rlim_cur, " (ulimit -n)")};
}

Fd& Fd::operator=(Fd&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}
int Fd::release() { return std::exchange(fd_, -1); }
void Fd::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Fd expect_fd(int fd, std::string_view what) {
  if (fd < 0) throw file_error(what, errno);
  return Fd(fd);
}

void wake_reader(const Fd& event) {
  const uint64_t one = 1;
  while (::write(event.get(), &one, sizeof one) < 0 && errno != EAGAIN) continue;
}

void hold_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0) continue;
    // Opened in the wrong direction, as the C library does for setuid programs. open() takes the
    // lowest free number.
    CHECK(::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) == fd);
  }
}

namespace {

constexpr std::string_view kRandomName = "XXXXXX";  // mkstemp's, after a dot

uint64_t size_of(const Fd& fd, std::string_view what) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) {
    throw file_error(what, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    throw Error(ErrorKind::kIo, cat("[file] ", what, ": not a regular file"));
  }
  return static_cast<uint64_t>(status.st_size);
}

// The maps of this process, for a signal handler: a list that only grows, whose places are reused.
// A place is read without a lock; `begin` is 0 while its other fields are invalid.
struct MapPlace {
  std::atomic<bool> taken{true};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::string name;
  Fd fd;  // for read(); empty if it could not be kept
  MapPlace* next = nullptr;
};
std::atomic<MapPlace*> map_places{nullptr};
static_assert(std::atomic<MapPlace*>::is_always_lock_free &&
              std::atomic<uintptr_t>::is_always_lock_free);

template <typename Matches>
MapPlace* find_place(Matches&& matches) {
  MapPlace* at = map_places.load(std::memory_order_acquire);
  while (at != nullptr && !matches(*at)) at = at->next;
  return at;
}

void remember_map(const void* address, size_t size, const Fd& fd, std::string name) {
  MapPlace* place = find_place([](MapPlace& at) {
    bool taken = false;
    return at.taken.compare_exchange_strong(taken, true, std::memory_order_acquire);
  });
  const bool is_new = place == nullptr;
  if (is_new) place = new MapPlace;
  place->name = std::move(name);
  place->fd = Fd(::fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  const auto begin = reinterpret_cast<uintptr_t>(address);
  place->end.store(begin + size, std::memory_order_relaxed);
  place->begin.store(begin, std::memory_order_release);
  if (!is_new) return;
  place->next = map_places.load(std::memory_order_relaxed);
  while (!map_places.compare_exchange_weak(place->next, place, std::memory_order_release)) continue;
}

void forget_map(const void* address) noexcept {
  const auto begin = reinterpret_cast<uintptr_t>(address);
  MapPlace* const place = find_place([&](MapPlace& at) { return at.begin == begin; });
  if (place == nullptr) return;
  place->fd.reset();
  place->begin.store(0, std::memory_order_relaxed);
  place->taken.store(false, std::memory_order_release);
}

MapPlace* place_of(const void* address) noexcept {
  const auto byte = reinterpret_cast<uintptr_t>(address);
  return find_place([&](const MapPlace& at) {
    const uintptr_t begin = at.begin.load(std::memory_order_acquire);
    return begin != 0 && begin <= byte && byte < at.end.load(std::memory_order_relaxed);
  });
}

FileStatus status_of(const struct stat& status) {
  constexpr uint64_t kBlock = 512;  // stat(2)'s unit
  const auto since_1970 = std::chrono::seconds(status.st_mtim.tv_sec) +
                          std::chrono::nanoseconds(status.st_mtim.tv_nsec);
  return {.regular = S_ISREG(status.st_mode),
          .bytes = static_cast<uint64_t>(status.st_size),
          .on_disk = static_cast<uint64_t>(status.st_blocks) * kBlock,
          .identity = status.st_ino,
          .written = std::chrono::file_clock::from_sys(
              std::chrono::sys_time<std::chrono::nanoseconds>(since_1970))};
}

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

struct OpenedFile {
  Fd fd;
  uint64_t size;
};

OpenedFile open_regular(const std::filesystem::path& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a FIFO's would block
  if (!fd) {
    const int error = errno;
    if (error != ENOENT && error != ENOTDIR) throw file_error(path.string(), error);
    throw Error(ErrorKind::kNotFound, cat("[file] ", path.string(), ": ", errno_text(error)));
  }
  const uint64_t size = size_of(fd, path.string());
  return {std::move(fd), size};
}

}  // namespace

Fd open_regular_only(const std::filesystem::path& path, int flags) {
  Fd fd(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644));
  const int error = errno;
  if (fd) {
    size_of(fd, path.string());
  } else if (error == ELOOP || error == EISDIR || error == ENXIO) {
    throw Error(ErrorKind::kIo, cat("[file] ", path.string(), ": not a regular file"));
  }
  errno = error;
  return fd;
}

std::optional<FileStatus> file_status(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status_of(status);
}

std::optional<FileStatus> file_status(const Fd& fd) {
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return std::nullopt;
  return status_of(status);
}

std::vector<FoundFile> files_below(const std::filesystem::path& folder) {
  namespace fs = std::filesystem;
  std::vector<FoundFile> found;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    struct stat status {};
    if (::lstat(at->path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
    found.push_back({at->path(), status_of(status)});
  }
  return found;
}

std::error_code make_folders(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  return error;
}

std::optional<uint64_t> free_bytes(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(folder, error);
  return error ? std::nullopt : std::optional<uint64_t>(space.available);
}

bool may_write_to(const std::filesystem::path& folder) {
  return ::access(folder.c_str(), W_OK | X_OK) == 0;
}

bool remove_file(const std::filesystem::path& path) {
  std::error_code error;
  return std::filesystem::remove(path, error);
}

void touch_file(const std::filesystem::path& path) {
  ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);
}

void warn_if_others_read(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || (status.st_mode & S_IROTH) == 0) return;
  log_warning(cat("[file] ", path.string(),
                  ": a secret that every user of this machine can read: "
                  "chmod o-r"));
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const OpenedFile file = open_regular(path);
  *this = MappedFile(file.fd, file.size, path.string());
}
MappedFile::MappedFile(const Fd& fd, std::string_view what)
    : MappedFile(fd, size_of(fd, what), what) {}
MappedFile::MappedFile(const Fd& fd, size_t size, std::string_view what) : size_(size) {
  if (size_ == 0) return;
  address_ = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (address_ == MAP_FAILED) {
    address_ = nullptr;
    throw Error(ErrorKind::kIo, cat("[file] ", what, ": mmap: ", errno_text(errno)));
  }
  try {
    remember_map(address_, size_, fd, std::string(what));
  } catch (...) {
    ::munmap(address_, size_);
    throw;
  }
}
void MappedFile::unmap() noexcept {
  if (address_ == nullptr) return;
  forget_map(address_);
  ::munmap(address_, size_);
}
const char* MappedFile::name_at(const void* address) noexcept {
  const MapPlace* const place = place_of(address);
  return place == nullptr ? nullptr : place->name.c_str();
}
void MappedFile::read(Bytes part, std::span<std::byte> out) {
  CHECK(part.size() == out.size());
  const MapPlace* const place = place_of(part.data());
  if (place == nullptr || !place->fd) {
    std::ranges::copy(part, out.begin());
    return;
  }
  const uint64_t at = reinterpret_cast<uintptr_t>(part.data()) - place->begin.load();
  if (read_at(place->fd, at, out, place->name).size() == out.size()) return;
  throw Error(ErrorKind::kIo, cat("[file] ", place->name, ": expected ", at + out.size(),
                                  " bytes, the file is shorter now"));
}
MappedFile MappedFile::in_memory(std::span<const Bytes> pieces) {
  constexpr std::string_view kWhat = "a file in memory";
  const Fd fd = expect_fd(::memfd_create("split", MFD_CLOEXEC), kWhat);
  size_t size = 0;
  for (const Bytes piece : pieces) {
    write_all(fd, piece, kWhat);
    size += piece.size();
  }
  return {fd, size, kWhat};
}
MappedFile::~MappedFile() { unmap(); }
MappedFile::MappedFile(MappedFile&& other) noexcept
    : address_(std::exchange(other.address_, nullptr)), size_(std::exchange(other.size_, 0)) {}
MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this != &other) {
    unmap();
    address_ = std::exchange(other.address_, nullptr);
    size_ = std::exchange(other.size_, 0);
  }
  return *this;
}

void MappedFile::will_need(Bytes bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page_size() * page_size();
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size());
  // NOLINTNEXTLINE(performance-no-int-to-ptr): madvise takes whole pages
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

bool MappedFile::let_go(Bytes bytes) {
  const uintptr_t page = page_size();
  const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + page - 1) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data() + bytes.size()) / page * page;
  // NOLINTNEXTLINE(performance-no-int-to-ptr): madvise takes whole pages
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  return true;
}

bool MappedFile::is_memory() { return false; }

std::string read_file(const std::filesystem::path& path, uint64_t limit) {
  const OpenedFile file = open_regular(path);
  if (file.size > limit) {
    throw Error(ErrorKind::kInput,
                cat("[file] ", path.string(), ": ", file.size, " bytes, expected at most ", limit));
  }
  std::string text(file.size, '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = ::read(file.fd.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw file_error(path.string(), errno);
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  return text;
}

void write_all(const Fd& fd, Bytes bytes, std::string_view what) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd.get(), bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw file_error(what, errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

AtomicFile::AtomicFile(std::filesystem::path path) : path_(std::move(path)) {
  std::string name = cat(path_.string(), ".", kRandomName);
  fd_ = Fd(::mkostemp(name.data(), O_CLOEXEC));
  if (!fd_) throw file_error(name, errno);
  temporary_ = name;
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::append(Bytes bytes) { write_all(fd_, bytes, temporary_.string()); }

void AtomicFile::commit() {
  const auto require = [&](int result) {
    if (result != 0) throw file_error(path_.string(), errno);
  };
  require(::fchmod(fd_.get(), 0644));
  require(::fsync(fd_.get()));
  require(::rename(temporary_.c_str(), path_.c_str()));
  temporary_.clear();
  sync_directory(path_.parent_path());
}

void sync_directory(const std::filesystem::path& directory) {
  const Fd fd(
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (fd) ::fsync(fd.get());
}

void remove_leftovers(const std::filesystem::path& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const std::string prefix = path.filename().string() + ".";
  for (fs::directory_iterator at(path.parent_path(), error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with(prefix) || name.size() != prefix.size() + kRandomName.size()) continue;
    std::error_code ignored;
    const auto written = fs::last_write_time(at->path(), ignored);
    if (!ignored && fs::file_time_type::clock::now() - written > std::chrono::hours(1)) {
      fs::remove(at->path(), ignored);
    }
  }
}

void write_file(const std::filesystem::path& path, Bytes bytes) {
  AtomicFile file(path);
  file.append(bytes);
  file.commit();
}

}  // namespace split
