#include "program/exit_codes.h"

#include <algorithm>

namespace split {

int exit_code(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInput:
    case ErrorKind::kNotFound:
      return 2;
    case ErrorKind::kRemote:
    case ErrorKind::kBusy:
      return 3;
    case ErrorKind::kIo:
      return 4;
    case ErrorKind::kShape:  // of a checkpoint, or of what a server sent
    case ErrorKind::kIntegrity:
      return 5;
    case ErrorKind::kDevice:
      return 6;
    case ErrorKind::kInUse:
      return 98;
  }
  return kExitFailed;
}

std::string plain_words(std::string_view message) {
  std::string out;
  while (!message.empty()) {
    const size_t end = message.find("] ");
    const bool tag = message.front() == '[' && end != message.npos && end > 1 &&
                     (out.empty() || out.ends_with(": ")) &&
                     std::ranges::all_of(message.substr(1, end - 1),
                                         [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
    if (tag) {
      message.remove_prefix(end + 2);
      continue;
    }
    out += message.front();
    message.remove_prefix(1);
  }
  return out;
}

}  // namespace split
