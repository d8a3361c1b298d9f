// Stop strings over a stream of text: what is before the first one goes out, the stop string and
// the rest do not. The first to be complete wins, and of several complete at the same byte the
// longest. Where the stream is cut into pieces changes nothing, and time is bytes times stop
// strings, however the strings repeat themselves.
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

// One of them, with the table by which it is found.
struct StopText {
  explicit StopText(std::string text);

  std::string text;
  // [n]: after n matched bytes, the longest shorter prefix that still matches.
  std::vector<uint16_t> fallback;
};

// The stop strings of a request, which the copies of its options share.
class StopTexts : public SharedList<StopText> {
 public:
  static constexpr size_t kMost = 16, kMostBytes = 1024;  // of them, and of each
  static constexpr size_t kTextBytes = 4 * kMostBytes;    // that one takes at most, table included

  StopTexts() = default;
  // Throws Error(kInput) where they do not fit.
  StopTexts(const std::vector<std::string>& texts);
  StopTexts(std::initializer_list<std::string> texts)
      : StopTexts(std::vector<std::string>(texts)) {}

  std::vector<std::string> texts() const;
  // Whether none is empty or above the limits; and what that is, for messages.
  static bool fit(const std::vector<std::string>& texts);
  static std::string expected();
};

// One thread at a time.
class StopStrings {
 public:
  explicit StopStrings(StopTexts texts = {})
      : texts_(std::move(texts)), lengths_(texts_.size(), 0) {}

  // Returns what may be written now: all that is certainly not part of a stop string. Nothing once
  // stopped.
  std::string push(std::string_view text);
  // At the end of the stream: what was held back as the possible start of a stop string.
  std::string flush();

  bool stopped() const { return matched_.has_value(); }
  // The index of the string that matched.
  std::optional<size_t> matched() const { return matched_; }

 private:
  StopTexts texts_;
  std::vector<size_t> lengths_;  // of each one's prefix that ends the stream so far
  std::string held_;
  std::optional<size_t> matched_;
};

}  // namespace split
