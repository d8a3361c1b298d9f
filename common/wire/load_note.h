// A note of its load that a cloud sends with an answer of a session: which cut it wishes for,
// what a row costs beyond its work, and how many guessed rows a step may have. A header of steps,
// and a comment of streams: "Split-Load: want=6, price=0.40, draft=3"; in a stream it also says how
// many rows of the prompt were not computed, which a step says in a header of its own.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace split::wire {

inline constexpr char kLoadHeader[] = "Split-Load";
// In the answer to a step: how many of its first rows were not computed, if any.
inline constexpr char kCachedHeader[] = "Split-Cached";
inline constexpr int kMostCut = 1024, kMostDraft = 7;

struct LoadNote {
  std::optional<int> want;  // the session's cut, or a lower one; none: the edge may choose
  double price = 0;         // from 0 to 1, in hundredths
  int draft = kMostDraft;   // guessed rows beside a step's next one
  uint32_t cached = 0;      // rows that were not computed

  bool operator==(const LoadNote&) const = default;
};

// "want=6, price=0.40, draft=3, cached=48"; without a wish there is no "want", and no "cached"
// where all was computed.
std::string to_text(const LoadNote& note);
// Reads that; nothing where a figure is none, and what has another name is passed over.
std::optional<LoadNote> parse_load_note(std::string_view text);

}  // namespace split::wire
