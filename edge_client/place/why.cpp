#include "edge_client/place/why.h"

#include <array>

#include "base/error.h"
#include "base/figures.h"

namespace split::edge {

std::string_view name_of(Why why) {
  constexpr std::array<std::string_view, 7> kNames = {
      "asked", "landed", "fastest", "goal", "only_fit", "asked_by_cloud", "cloud_lost"};
  return kNames.at(static_cast<size_t>(why));
}

std::string move_words(Why why, double token_ms, double there_ms) {
  constexpr std::array<const char*, 7> kWords = {
      "asked for",
      "its weights have landed, which relieves the cloud",
      "quicker there",
      "too slow where it was",
      "nothing else fits here",
      "the cloud asked for it",
      "the cloud was lost"};
  const auto ms = [](double value) { return fixed(value, value < 10 ? 2 : 0); };
  std::string words = kWords.at(static_cast<size_t>(why));
  const bool known = token_ms > 0 && (why == Why::kGoal || (there_ms > 0 && there_ms < token_ms));
  if (!known || (why != Why::kFastest && why != Why::kGoal)) return words;
  words += ": ";
  if (why == Why::kFastest) words += cat(ms(there_ms), " for ");
  return words + cat(ms(token_ms), " ms a token");
}

}  // namespace split::edge
