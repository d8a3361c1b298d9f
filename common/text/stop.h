// Stop strings over a stream of text: what is before the first one goes out, the stop string and
// the rest do not. The first to be complete wins, and of several complete at the same byte the
// longest. Where the stream is cut into pieces changes nothing, and time is bytes times stop
// strings, however the strings repeat themselves.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace split {

// One thread at a time.
class StopStrings {
 public:
  // Throws Error(kInput) for an empty string.
  explicit StopStrings(std::vector<std::string> strings = {});

  // Returns what may be written now: all that is certainly not part of a stop string. Nothing once
  // stopped.
  std::string push(std::string_view text);
  // At the end of the stream: what was held back as the possible start of a stop string.
  std::string flush();

  bool stopped() const { return matched_.has_value(); }
  // The index of the string that matched.
  std::optional<size_t> matched() const { return matched_; }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t>
        fallback;       // [n]: after n matched bytes, the longest shorter prefix that still matches
    size_t length = 0;  // of the prefix that ends the stream so far
  };
  std::vector<Pattern> patterns_;
  std::string held_;
  std::optional<size_t> matched_;
};

}  // namespace split
