#include "text/stop.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace split {
namespace {

// Returns the matched prefix after one more byte (Knuth, Morris, Pratt).
size_t advance(const StopText& stop, size_t length, char c) {
  while (length > 0 && stop.text[length] != c) length = stop.fallback[length];
  return stop.text[length] == c ? length + 1 : 0;
}

}  // namespace

StopText::StopText(std::string given) : text(std::move(given)), fallback(text.size() + 1, 0) {
  CHECK(!text.empty() && text.size() <= StopTexts::kMostBytes);
  for (size_t n = 1; n < text.size(); ++n) {
    fallback[n + 1] = static_cast<uint16_t>(advance(*this, fallback[n], text[n]));
  }
}

bool StopTexts::fit(const std::vector<std::string>& texts) {
  return texts.size() <= kMost && std::ranges::all_of(texts, [](const std::string& text) {
           return !text.empty() && text.size() <= kMostBytes;
         });
}

std::string StopTexts::expected() {
  return cat("expected at most ", kMost, " texts of 1 to ", kMostBytes, " bytes");
}

StopTexts::StopTexts(const std::vector<std::string>& texts) {
  if (!fit(texts)) throw Error(ErrorKind::kInput, cat("[stop] ", expected()), "stop");
  SharedList::operator=(std::vector<StopText>(texts.begin(), texts.end()));
}

std::vector<std::string> StopTexts::texts() const {
  std::vector<std::string> texts;
  for (const StopText& one : *this) texts.push_back(one.text);
  return texts;
}

std::string StopStrings::push(std::string_view text) {
  if (stopped()) return {};
  std::string out = std::exchange(held_, {});
  for (const char c : text) {
    out += c;
    size_t longest = 0;
    for (size_t i = 0; i < lengths_.size(); ++i) {
      const StopText& stop = texts_[i];
      size_t& length = lengths_[i];
      length = advance(stop, length, c);
      if (length < stop.text.size() || length <= longest) continue;
      longest = length;
      matched_ = i;
    }
    if (stopped()) {
      out.erase(out.size() - longest);
      return out;
    }
  }
  size_t hold = 0;
  for (const size_t length : lengths_) hold = std::max(hold, length);
  held_ = out.substr(out.size() - hold);
  out.erase(out.size() - hold);
  return out;
}

std::string StopStrings::flush() { return std::exchange(held_, {}); }

}  // namespace split
