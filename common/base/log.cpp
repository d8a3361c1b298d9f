#include "base/log.h"

#include <unistd.h>

#include <cstdlib>
#include <string>

namespace split {
namespace {

void write_line(std::string_view level, std::string_view message) {
  std::string line;
  line.reserve(level.size() + message.size() + 2);
  line.append(level).append(message).append("\n");
  // stderr that is gone or full is no reason to stop.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

void log_info(std::string_view message) { write_line("", message); }
void log_warning(std::string_view message) { write_line("warning: ", message); }
void log_error(std::string_view message) { write_line("error: ", message); }

int debug_level() {
  static const int level = [] {
    const char* text = std::getenv("SPLIT_DEBUG");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return level;
}

}  // namespace split
