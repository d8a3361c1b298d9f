// The phase of a row: part of a prompt, or of generated text.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "step/names.h"

namespace split {

// Both phases have one arithmetic, except where a device has a faster one for many rows: a GPU
// gives prompt rows of a profile of halves or blocks (and, in a wide Shard, generated rows) to
// matrix units, the CPU multiplies prompt rows by quantised weights in bf16.
enum class Phase : uint8_t { kPrompt, kGenerate };

constexpr std::string_view wire_name(Phase phase) {
  return names::kPhases[static_cast<size_t>(phase)].wire;
}
constexpr std::string_view metric_name(Phase phase) {
  return names::kPhases[static_cast<size_t>(phase)].metric;
}
constexpr std::optional<Phase> phase_from_wire(std::string_view name) {
  for (const Phase phase : {Phase::kPrompt, Phase::kGenerate}) {
    if (wire_name(phase) == name) return phase;
  }
  return std::nullopt;
}

}  // namespace split
