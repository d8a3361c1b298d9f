// Why a text ended. The names are OpenAI's; "cancelled" is ours.
#pragma once

#include <array>
#include <cstddef>
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
// An unknown name stands for an ordinary end: kStop.
constexpr FinishReason finish_reason_named(std::string_view name) {
  for (size_t i = 0; i < kFinishReasons.size(); ++i) {
    if (kFinishReasons[i] == name) return static_cast<FinishReason>(i);
  }
  return FinishReason::kStop;
}

}  // namespace split
