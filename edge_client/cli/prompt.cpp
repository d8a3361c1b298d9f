#include "edge_client/cli/prompt.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.h"
#include "base/json.h"

namespace split::edge {
namespace {

constexpr size_t kMostPrompt = 64 << 20;  // 64 MiB: no context holds a hundredth of it

// A pipe may stay silent for ever, hence the interrupt.
std::string read_all(int input, std::string_view name, Interrupt& interrupt) {
  const Fd wake(::eventfd(0, EFD_CLOEXEC));
  CHECK(wake);
  const Interrupt::Hook hook(interrupt, [&] { wake_reader(wake); });
  std::string text;
  char buffer[64 << 10];
  for (;;) {
    pollfd fds[2] = {{input, POLLIN, 0}, {wake.get(), POLLIN, 0}};
    if (::poll(fds, 2, -1) < 0) continue;
    if (fds[1].revents != 0) throw Error(ErrorKind::kInput, cat(name, ": interrupted"));
    const ssize_t n = ::read(input, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) throw Error(ErrorKind::kInput, cat(name, ": ", errno_text(errno)));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMostPrompt) {
      throw Error(ErrorKind::kInput, cat(name, ": expected at most ", kMostPrompt, " bytes"));
    }
  }
}

// Any file that can be read, a pipe too. Opening one that nobody writes to does not wait.
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

}  // namespace split::edge
