#include "edge_client/prompt.h"

#include <unistd.h>

#include <cerrno>

#include "base/file.h"

namespace split::edge {
namespace {

constexpr size_t kMostPrompt = 64 << 20;  // 64 MiB: no context holds a hundredth of it

std::string read_all(int input) {
  std::string text;
  char buffer[64 << 10];
  for (;;) {
    const ssize_t n = ::read(input, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) throw Error(ErrorKind::kInput, cat("stdin: ", errno_text(errno)));
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMostPrompt) {
      throw Error(ErrorKind::kInput, cat("stdin: expected at most ", kMostPrompt, " bytes"));
    }
  }
}

}  // namespace

std::string read_prompt(const Options& options, int input) {
  if (options.prompt_ids) return {};
  if (options.prompt) return *options.prompt;
  if (options.prompt_file) {
    try {
      return read_file(*options.prompt_file, kMostPrompt);
    } catch (const Error& error) {  // the user's words, not the cache's disk
      throw Error(ErrorKind::kInput, cat("--prompt-file: ", error.what()));
    }
  }
  if (::isatty(input)) {
    throw Error(ErrorKind::kInput,
                "no prompt: expected --prompt TEXT, --prompt-file FILE or text on stdin");
  }
  return read_all(input);
}

}  // namespace split::edge
