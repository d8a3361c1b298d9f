// Stop strings over a stream of text: text before the first one goes out, the stop string and the
// rest do not. The first to be complete wins, and of several complete at one byte the longest. The
// result does not depend on how the stream is cut, and time is bytes times stop strings, however
// the strings repeat themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/shared_list.h"

namespace split {

// A stop string, with the table by which it is found.
struct StopText {
  explicit StopText(std::string text);

  std::string text;
  // [n]: after n matched bytes, the longest shorter prefix that still matches.
  std::vector<uint16_t> fallback;
};

// The stop strings of a request, which the copies of its options share.
class StopTexts : public SharedList<StopText> {
 public:
  static constexpr size_t kMost = 16, kMostBytes = 1024;  // number of strings, and length of each
  static constexpr size_t kTextBytes = 4 * kMostBytes;    // most bytes of one, table included

  StopTexts() = default;
  // Throws Error(kInput) if they do not fit.
  StopTexts(const std::vector<std::string>& texts);
  StopTexts(std::initializer_list<std::string> texts)
      : StopTexts(std::vector<std::string>(texts)) {}

  std::vector<std::string> texts() const;
  // Whether all are non-empty and within the limits; and the limits in words, for messages.
  static bool fit(const std::vector<std::string>& texts);
  static std::string expected();
};

// One thread at a time.
class StopStrings {
 public:
  explicit StopStrings(StopTexts texts = {})
      : texts_(std::move(texts)), lengths_(texts_.size(), 0) {}

  // Returns text that may be written now: all that is certainly not part of a stop string. Nothing
  // once stopped.
  std::string push(std::string_view text);
  // Returns, at the end of the stream, text held back as the possible start of a stop string.
  std::string flush();

  bool stopped() const { return matched_.has_value(); }
  // The index of the string that matched.
  std::optional<size_t> matched() const { return matched_; }

 private:
  StopTexts texts_;
  std::vector<size_t> lengths_;  // each string's longest prefix at the stream's end
  std::string held_;
  std::optional<size_t> matched_;
};

}  // namespace split
