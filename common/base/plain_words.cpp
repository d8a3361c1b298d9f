#include "base/plain_words.h"

#include <algorithm>

namespace split {
namespace {

// Returns the length of a layer's name at the beginning of `message`, such as "[http] ", or 0.
size_t layer_name(std::string_view message) {
  const size_t end = message.find("] ");
  const bool named = message.starts_with('[') && end != message.npos && end > 1 &&
                     std::ranges::all_of(message.substr(1, end - 1),
                                         [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  return named ? end + 2 : 0;
}

}  // namespace

std::string plain_words(std::string_view message) {
  std::string out;
  while (!message.empty()) {
    const bool begins = out.empty() || out.ends_with(": ");
    if (const size_t name = begins ? layer_name(message) : 0; name > 0) {
      message.remove_prefix(name);
      continue;
    }
    out += message.front();
    message.remove_prefix(1);
  }
  return out;
}

std::string one_layer(std::string_view message) {
  std::string_view last;
  for (size_t name = layer_name(message); name > 0; name = layer_name(message)) {
    last = message.substr(0, name);
    message.remove_prefix(name);
  }
  return std::string(last) + plain_words(message);
}

}  // namespace split
