#include "edge_client/cli/process.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/file.h"
#include "base/plain_words.h"
#include "program/exit_codes.h"
#include "program/lost_pages.h"
#include "program/terminal.h"

namespace split::edge {
namespace {

// Returns false when nobody reads any more.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EPIPE) return false;
    if (n < 0) {
      throw Error(ErrorKind::kIo, cat("stdout: ", errno_text(errno)));
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

bool is_one_file(int a, int b) {
  struct stat of_a {
  }, of_b{};
  return ::fstat(a, &of_a) == 0 && ::fstat(b, &of_b) == 0 && of_a.st_dev == of_b.st_dev &&
         of_a.st_ino == of_b.st_ino;
}

}  // namespace

int run_process(int argc, char** argv, Program program) try {
  hold_standard_streams();
  end_on_lost_pages("edge_client: ");
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file-size limit is an error like a full disk
  Interrupt interrupt;
  const SignalWatch watch(interrupt);
  World world;
  world.environment = [](const char* name) -> const char* { return std::getenv(name); };
  world.input = STDIN_FILENO;
  world.console.out = [](std::string_view text) { return write_all(STDOUT_FILENO, text); };
  world.console.err = [](std::string_view text) {
    const std::string lines = wrapped(text, terminal_columns(STDERR_FILENO));
    std::fwrite(lines.data(), 1, lines.size(), stderr);  // unbuffered; the last resort
  };
  world.console.out_is_terminal = ::isatty(STDOUT_FILENO) == 1;
  world.console.err_is_terminal = ::isatty(STDERR_FILENO) == 1;
  world.console.one_place = is_one_file(STDOUT_FILENO, STDERR_FILENO);
  world.console.columns = terminal_columns(STDOUT_FILENO);
  const char* const no_color = std::getenv("NO_COLOR");
  world.console.colors = no_color == nullptr || *no_color == '\0';
  return program({argv + 1, argv + argc}, world, interrupt);
} catch (const std::bad_alloc&) {
  std::fputs("edge_client: out of memory\n", stderr);
  return kExitFailed;
} catch (const std::exception& error) {  // a bug of ours
  std::fprintf(stderr, "edge_client: %s\n", plain_words(error.what()).c_str());
  return kExitFailed;
}

}  // namespace split::edge
