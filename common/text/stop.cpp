#include "text/stop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace split {
namespace {

// Knuth, Morris, Pratt: the matched prefix after one more byte.
size_t advance(const std::string& text, const std::vector<size_t>& fallback, size_t length,
               char c) {
  while (length > 0 && text[length] != c) length = fallback[length];
  return text[length] == c ? length + 1 : 0;
}

}  // namespace

StopStrings::StopStrings(std::vector<std::string> strings) {
  for (std::string& text : strings) {
    if (text.empty()) throw Error(ErrorKind::kInput, "[stop] expected text, got an empty string");
    std::vector<size_t> fallback(text.size() + 1, 0);
    for (size_t n = 1; n < text.size(); ++n) {
      fallback[n + 1] = advance(text, fallback, fallback[n], text[n]);
    }
    patterns_.push_back({std::move(text), std::move(fallback), 0});
  }
}

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return {};
  std::string out = std::exchange(held_, {});
  for (const char c : text) {
    out += c;
    size_t longest = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& p = patterns_[i];
      p.length = advance(p.text, p.fallback, p.length, c);
      if (p.length < p.text.size() || p.length <= longest) continue;
      longest = p.length;
      matched_ = i;
    }
    if (stopped()) {
      out.erase(out.size() - longest);
      return out;
    }
  }
  size_t hold = 0;
  for (const Pattern& p : patterns_) hold = std::max(hold, p.length);
  held_ = out.substr(out.size() - hold);
  out.erase(out.size() - hold);
  return out;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

}  // namespace split
