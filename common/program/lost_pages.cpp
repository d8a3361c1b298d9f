#include "program/lost_pages.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <csignal>

#include "base/file.h"
#include "program/exit_codes.h"

namespace split {
namespace {

struct Line {
  std::string_view before, after;
};
constinit Line line_parts;
constinit std::atomic_flag line_is_written;

// Builds the line in a buffer of its own, by calls that are safe in a signal's handler.
class LineBuffer {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      if (size_ < bytes_.size()) bytes_[size_++] = c;
    }
  }
  // Adds an untrusted name, for a terminal or inside of JSON.
  void add_name(std::string_view name) {
    for (const char c : name.substr(0, bytes_.size() / 2)) {
      const bool plain = static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\';
      add({plain ? &c : "?", 1});
    }
  }
  void write() const {
    [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, bytes_.data(), size_);
  }

 private:
  std::array<char, 2048> bytes_;
  size_t size_ = 0;
};

void on_bus_error(int signal, siginfo_t* info, void*) {
  const bool fault = info->si_code > 0;  // false: another process sent it
  const char* const name = fault ? MappedFile::name_at(info->si_addr) : nullptr;
  if (name == nullptr) {
    ::signal(signal, SIG_DFL);
    if (!fault) ::raise(signal);
    return;  // the access faults again
  }
  while (line_is_written.test_and_set()) ::pause();  // another thread is ending the process
  LineBuffer line;
  line.add(line_parts.before);
  line.add("[file] ");
  line.add_name(name);
  line.add(": a part of it is lost: the file was cut short, or its disk fails");
  line.add(line_parts.after);
  line.add("\n");
  line.write();
  ::_exit(exit_code(ErrorKind::kIo));
}

}  // namespace

void end_on_lost_pages(std::string_view before, std::string_view after) {
  line_parts = {before, after};
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  CHECK(::sigaction(SIGBUS, &action, nullptr) == 0);
}

}  // namespace split
