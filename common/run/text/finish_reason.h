// Why a text ended. Its names are those of OpenAI's API; "cancelled" is ours.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

namespace split {

// kNone: it has not ended.
enum class FinishReason : uint8_t { kNone, kLength, kStop, kToolCalls, kCancelled };

inline constexpr std::array<std::string_view, 5> kFinishReasons = {"", "length", "stop",
                                                                   "tool_calls", "cancelled"};

constexpr std::string_view name_of(FinishReason reason) {
  return kFinishReasons[static_cast<size_t>(reason)];
}
// A name that is not known stands for an end like any other: kStop.
constexpr FinishReason finish_reason_named(std::string_view name) {
  const auto* const at = std::ranges::find(kFinishReasons, name);
  return at == kFinishReasons.end() ? FinishReason::kStop
                                    : static_cast<FinishReason>(at - kFinishReasons.begin());
}

}  // namespace split
