// A cloud's note of its load in a session's answer: the cut that it asks for, the cost of a row
// beyond its work, and how many guessed rows a step may have. A header of steps, and a comment of
// streams: "Split-Load: want=6, price=0.40, draft=3"; in a stream also how many rows of the prompt
// were not computed, for which a step has a header.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace split::wire {

inline constexpr char kLoadHeader[] = "Split-Load";
// Header of a step's answer: how many of its first rows were not computed, if any.
inline constexpr char kCachedHeader[] = "Split-Cached";
inline constexpr int kMostCut = 1024, kMostDraft = 7;

struct LoadNote {
  std::optional<int> want = {};  // the session's cut, or a lower one; nullopt: any
  double price = 0;              // from 0 to 1, in hundredths
  int draft = kMostDraft;        // guessed rows beside a step's next one
  uint32_t cached = 0;           // rows that were not computed
  std::string bits = {};         // bits_mark() of what its rows' bits are now, if a device was lost

  bool operator==(const LoadNote&) const = default;
};

// 16 hex digits that tell one name of bits (run/bits.h) from another.
std::string bits_mark(std::string_view bits);

// Returns "want=6, price=0.40, draft=3, cached=48", without "want" if it is nullopt, without
// "cached" if everything was computed, and with ", bits=" and its mark if there is one.
std::string to_text(const LoadNote& note);
// Parses a note; nullopt for a malformed figure. Skips unknown names.
std::optional<LoadNote> parse_load_note(std::string_view text);

}  // namespace split::wire
