#include "edge_client/cli/prompt.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/json.h"

namespace split::edge {
namespace {

constexpr size_t kMostPrompt = 64 << 20;  // 64 MiB: a hundred times any context

Fd wake_up() { return expect_fd(::eventfd(0, EFD_CLOEXEC), "an event"); }

// Appends the next bytes; returns 0 at the end. Waits for the interrupt too, as a pipe may stay
// silent for ever.
size_t read_some(int input, const Fd& wake, std::string_view name, std::string& text) {
  char buffer[64 << 10];
  for (;;) {
    pollfd fds[2] = {{input, POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) throw Error(ErrorKind::kInput, cat(name, ": interrupted"));
    const ssize_t n = ::read(input, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw Error(ErrorKind::kInput, cat(name, ": ", errno_text(errno)));
    text.append(buffer, static_cast<size_t>(n));
    return static_cast<size_t>(n);
  }
}

std::string read_all(int input, std::string_view name, Interrupt& interrupt) {
  const Fd wake = wake_up();
  const Interrupt::Hook hook(interrupt, [&] { wake_reader(wake); });
  std::string text;
  for (;;) {
    if (read_some(input, wake, name, text) == 0) return text;
    if (text.size() > kMostPrompt) {
      throw Error(ErrorKind::kInput, cat(name, ": expected at most ", kMostPrompt, " bytes"));
    }
  }
}

// Opens any readable file, pipes included, without waiting for a pipe's writer.
Fd open_prompt(const std::string& path, const std::string& name) {
  Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) throw Error(ErrorKind::kInput, cat(name, ": ", errno_text(errno)));
  return file;
}

}  // namespace

std::string read_prompt(const Options& options, int input, Interrupt& interrupt) {
  if (options.prompt_ids) return {};
  if (options.prompt) return *options.prompt;
  if (options.prompt_file) {
    const std::string name = cat("--prompt-file: ", shown(*options.prompt_file));
    return read_all(open_prompt(*options.prompt_file, name).get(), name, interrupt);
  }
  if (::isatty(input)) {
    throw Error(ErrorKind::kInput,
                "no prompt: expected --prompt TEXT, --prompt-file FILE or text on stdin");
  }
  return read_all(input, "stdin", interrupt);
}

PromptLines::PromptLines(const Options& options, int input, Interrupt& interrupt)
    : wake_(wake_up()), input_(input), hook_(interrupt, [this] { wake_reader(wake_); }) {
  if (!options.prompt_file) {
    if (::isatty(input)) {
      throw Error(ErrorKind::kInput, "no texts: expected --prompt-file FILE or lines on stdin");
    }
    return;
  }
  name_ = cat("--prompt-file: ", shown(*options.prompt_file));
  file_ = open_prompt(*options.prompt_file, name_);
  input_ = file_.get();
  struct stat found = {};
  if (::fstat(input_, &found) == 0) size_ = static_cast<double>(found.st_size);
}

std::optional<double> PromptLines::share() const {
  if (size_ <= 0) return std::nullopt;
  return taken_ / size_;
}

bool PromptLines::next(std::string& line) {
  for (;;) {
    const size_t end = buffer_.find('\n', at_);
    if (end != buffer_.npos || (ended_ && at_ < buffer_.size())) {
      const size_t length = std::min(end, buffer_.size()) - at_;
      line.assign(buffer_, at_, length);
      if (line.ends_with('\r')) line.pop_back();
      at_ = std::min(at_ + length + 1, buffer_.size());
      taken_ += static_cast<double>(length) + 1;
      return true;
    }
    if (ended_) return false;
    buffer_.erase(0, at_);
    at_ = 0;
    ended_ = read_some(input_, wake_, name_, buffer_) == 0;
    if (buffer_.size() > kMostPrompt) {
      throw Error(ErrorKind::kInput,
                  cat(name_, ": expected lines of at most ", kMostPrompt, " bytes"));
    }
  }
}

}  // namespace split::edge
