// A blob being assembled: a file beside its final name, of its final size, held by one process at a
// time. What was written stays if the process is killed; the lock does not.
#pragma once

#include <filesystem>
#include <optional>
#include <span>

#include "base/file.h"

namespace split {

class PartFile {
 public:
  // Takes `path`.part, new or as it was left. nullopt while another process or PartFile has it.
  // Throws Error(kIo).
  static std::optional<PartFile> take(const std::filesystem::path& path, uint64_t bytes);

  // Whether something may be in it.
  bool resumed() const { return resumed_; }
  // Maps the file, which shows later writes, also after commit().
  MappedFile map() const;
  // Frees memory of its own; maps stay.
  void let_go();
  const Fd& fd() const { return fd_; }
  void write(uint64_t offset, Bytes bytes);
  // Makes it durable, under its final name.
  void commit();
  void discard();
  // Leaves it to the next one who takes it, even while it is mapped here.
  void release();

 private:
  PartFile(Fd fd, std::filesystem::path path, bool resumed)
      : fd_(std::move(fd)), path_(std::move(path)), resumed_(resumed) {}
  Fd fd_;
  std::filesystem::path path_;  // the final one
  bool resumed_ = false;
};

// Suffixes of a file's name behind a blob's hash.
inline constexpr std::string_view kPartSuffix = ".part";

// Reads at most out.size() bytes from `offset` on; fewer at the end of the file. Throws Error(kIo).
Bytes read_at(const Fd& fd, uint64_t offset, std::span<std::byte> out, const std::string& what);

}  // namespace split
