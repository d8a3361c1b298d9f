// Implements base/file.h and base/system/part_file.h over the page's store (page/store.js), which
// is a disk or, if the browser grants none, memory. Mapping reads a file into memory; a part is in
// memory from its first byte on, and each write goes to the store too.
#include "base/file.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <map>

#include "base/system/part_file.h"
#include "base/web/fibres.h"

namespace split {
namespace {

// The store's answer to a call: the page fills it and wakes the one who waits for its address.
struct alignas(8) Told {
  static constexpr double kNothing = -1e9;
  double result = kNothing;  // negative: -errno
  FileStatus status() const;
  double bytes = 0, on_disk = 0, identity = 0, written_ms = 0;
};

extern "C" {
#define STORE(name) __attribute__((import_module("store"), import_name(name)))
STORE("status") void store_status(Told* told, const char* path, size_t size);
STORE("status_of") void store_status_of(Told* told, int file);
// Opens a file for reading; or one for writing, of `bytes`, which nobody else has (-EBUSY).
STORE("open") void store_open(Told* told, const char* path, size_t size);
STORE("take") void store_take(Told* told, const char* path, size_t size, double bytes);
STORE("read") void store_read(Told* told, int file, double offset, void* out, size_t size);
STORE("write") void store_write(Told* told, int file, double offset, const void* from, size_t size);
// Closes a file that was taken, durable and under its name.
STORE("commit") void store_commit(Told* told, int file, const char* path, size_t size);
STORE("close") void store_close(int file);
STORE("put")
void store_put(Told* told, const char* path, size_t size, const void* from, size_t bytes);
STORE("remove") void store_remove(Told* told, const char* path, size_t size);
STORE("touch") void store_touch(const char* path, size_t size);
// Returns the bytes of a list of the files below a folder, a line "bytes on_disk identity
// written_ms path\n" each; `listed` copies it.
STORE("list") void store_list(Told* told, const char* path, size_t size);
STORE("listed") void store_listed(Told* told, char* out);
#undef STORE
}

template <typename Call, typename... Arguments>
Told ask(const Call& call, Arguments... arguments) {
  Told told;
  call(&told, arguments...);
  while (told.result == Told::kNothing) fibres::block(&told);
  return told;
}
template <typename Call, typename... Arguments>
Told ask(const Call& call, const std::filesystem::path& path, Arguments... arguments) {
  return ask(call, path.native().data(), path.native().size(), arguments...);
}

double expect(const Told& told, std::string_view what) {
  if (told.result < 0) throw file_error(what, static_cast<int>(-told.result));
  return told.result;
}

FileStatus Told::status() const {
  using std::filesystem::file_time_type;
  const auto written = std::chrono::duration<double, std::milli>(written_ms);
  return {.regular = true,
          .bytes = static_cast<uint64_t>(bytes),
          .on_disk = static_cast<uint64_t>(on_disk),
          .identity = static_cast<uint64_t>(identity),
          .written = file_time_type(std::chrono::duration_cast<file_time_type::duration>(written))};
}

// Files in memory, by address. Each is freed with its last reference.
struct Block {
  size_t size;
  int holders;
};
std::map<const std::byte*, Block> blocks;
std::map<int, std::byte*> parts;  // contents of taken files

std::byte* new_block(size_t size, std::string_view what) {
  constexpr size_t kLine = 64;
  auto* const block =
      static_cast<std::byte*>(std::aligned_alloc(kLine, (size + kLine) / kLine * kLine));
  if (block == nullptr) throw Error(ErrorKind::kIo, cat("[file] ", what, ": no memory for it"));
  blocks[block] = {size, 1};
  return block;
}

void drop_block(const void* address) {
  const auto block = blocks.find(static_cast<const std::byte*>(address));
  if (block == blocks.end() || --block->second.holders > 0) return;
  std::free(const_cast<std::byte*>(block->first));
  blocks.erase(block);
}

void drop_part(int file) {
  const auto part = parts.find(file);
  if (part == parts.end()) return;
  drop_block(part->second);
  parts.erase(part);
}

void read_into(std::span<std::byte> out, int file, std::string_view what) {
  const double read = expect(ask(store_read, file, 0.0, out.data(), out.size()), what);
  if (read != static_cast<double>(out.size())) throw file_error(what, EIO);
}

}  // namespace

std::string errno_text(int error) { return std::strerror(error); }
Error file_error(std::string_view what, int error) {
  return {ErrorKind::kIo, cat("[file] ", what, ": ", errno_text(error))};
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
  if (fd_ < 0) return;
  drop_part(fd_);
  store_close(std::exchange(fd_, -1));
}

Fd open_regular_only(const std::filesystem::path& path, int) {
  const Told told = ask(store_open, path);
  if (told.result >= 0) return Fd(static_cast<int>(told.result));
  errno = static_cast<int>(-told.result);
  return Fd();
}

std::optional<FileStatus> file_status(const std::filesystem::path& path) {
  const Told told = ask(store_status, path);
  return told.result < 0 ? std::nullopt : std::optional(told.status());
}
std::optional<FileStatus> file_status(const Fd& fd) {
  const Told told = ask(store_status_of, fd.get());
  return told.result < 0 ? std::nullopt : std::optional(told.status());
}

std::vector<FoundFile> files_below(const std::filesystem::path& folder) {
  Told told = ask(store_list, folder);
  if (told.result <= 0) return {};
  std::string list(static_cast<size_t>(told.result), '\0');
  store_listed(&told, list.data());
  std::vector<FoundFile> found;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (at < end) {
    Told one;
    for (double* const number : {&one.bytes, &one.on_disk, &one.identity, &one.written_ms}) {
      at = parse_real(at, end, *number).ptr + 1;
    }
    const char* const line_end = std::find(at, end, '\n');
    found.push_back({std::string(at, line_end), one.status()});
    at = line_end + 1;
  }
  return found;
}

// A store's folders follow from its files' names.
std::error_code make_folders(const std::filesystem::path&) { return {}; }
void sync_directory(const std::filesystem::path&) {}
bool may_write_to(const std::filesystem::path&) { return true; }
bool remove_file(const std::filesystem::path& path) { return ask(store_remove, path).result >= 0; }
void touch_file(const std::filesystem::path& path) {
  store_touch(path.native().data(), path.native().size());
}
// Unknown: what does not fit on the disk stays in memory.
std::optional<uint64_t> free_bytes(const std::filesystem::path&) { return std::nullopt; }

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Fd fd = open_regular_only(path, 0);
  if (!fd) throw file_error(path.string(), errno);
  *this = MappedFile(fd, path.string());
}
MappedFile::MappedFile(const Fd& fd, std::string_view what) {
  if (const auto part = parts.find(fd.get()); part != parts.end()) {
    Block& block = blocks.at(part->second);
    ++block.holders;
    address_ = part->second;
    size_ = block.size;
    return;
  }
  const Told told = ask(store_status_of, fd.get());
  expect(told, what);
  size_ = static_cast<size_t>(told.bytes);
  std::byte* const block = new_block(size_, what);
  address_ = block;
  try {
    read_into({block, size_}, fd.get(), what);
  } catch (...) {
    unmap();
    throw;
  }
}
void MappedFile::unmap() noexcept {
  if (address_ != nullptr) drop_block(address_);
  address_ = nullptr;
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
void MappedFile::will_need(Bytes) {}
bool MappedFile::let_go(Bytes) { return false; }
void MappedFile::read(Bytes part, std::span<std::byte> out) {
  std::ranges::copy(part, out.begin());
}
bool MappedFile::is_memory() { return true; }

std::string read_file(const std::filesystem::path& path, uint64_t limit) {
  const Fd fd = open_regular_only(path, O_RDONLY);
  if (!fd) throw Error(ErrorKind::kNotFound, cat("[file] ", path.string(), ": not there"));
  const auto status = file_status(fd);
  if (!status || status->bytes > limit) {
    throw Error(ErrorKind::kInput, cat("[file] ", path.string(), ": over ", limit, " bytes"));
  }
  std::string text(static_cast<size_t>(status->bytes), '\0');
  read_into(std::as_writable_bytes(std::span(text)), fd.get(), path.string());
  return text;
}

void write_file(const std::filesystem::path& path, Bytes bytes) {
  const void* const from = bytes.data();
  expect(ask(store_put, path, from, bytes.size()), path.string());
}

Bytes read_at(const Fd& fd, uint64_t offset, std::span<std::byte> out, const std::string& what) {
  if (const auto part = parts.find(fd.get()); part != parts.end()) {
    const size_t size = blocks.at(part->second).size;
    if (offset >= size) return {};
    out = out.first(std::min(out.size(), size - static_cast<size_t>(offset)));
    std::memcpy(out.data(), part->second + offset, out.size());
    return out;
  }
  const double read =
      expect(ask(store_read, fd.get(), static_cast<double>(offset), out.data(), out.size()), what);
  return out.first(static_cast<size_t>(read));
}

std::optional<PartFile> PartFile::take(const std::filesystem::path& path, uint64_t bytes) {
  const std::filesystem::path part = path.string() + std::string(kPartSuffix);
  const Told told = ask(store_take, part, static_cast<double>(bytes));
  if (told.result == -EBUSY) return std::nullopt;
  Fd fd(static_cast<int>(expect(told, part.string())));
  const bool resumed = told.on_disk > 0;
  if (bytes > SIZE_MAX) throw Error(ErrorKind::kIo, cat("[file] ", part.string(), ": too large"));
  std::byte* const block = new_block(static_cast<size_t>(bytes), part.string());
  const int file = fd.get();
  parts[file] = block;
  if (resumed) read_into({block, static_cast<size_t>(bytes)}, file, part.string());
  return PartFile(std::move(fd), path, resumed);
}

void PartFile::let_go() { drop_part(fd_.get()); }

MappedFile PartFile::map() const { return MappedFile(fd_, path_.string()); }

void PartFile::write(uint64_t offset, Bytes bytes) {
  std::memcpy(parts.at(fd_.get()) + offset, bytes.data(), bytes.size());
  const void* const from = bytes.data();
  expect(ask(store_write, fd_.get(), static_cast<double>(offset), from, bytes.size()),
         path_.string());
}

void PartFile::commit() {
  const std::string& path = path_.native();
  expect(ask(store_commit, fd_.get(), path.data(), path.size()), path);
  fd_.reset();
}

void PartFile::release() { fd_.reset(); }

void PartFile::discard() {
  if (!fd_) return;
  fd_.reset();
  remove_file(path_.string() + std::string(kPartSuffix));
}

}  // namespace split
