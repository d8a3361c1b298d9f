// The reasons for a place: why a text's cut moves, or why a plan picks a cut.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace split::edge {

enum class Why : uint8_t { kAsked, kLanded, kFastest, kGoal, kOnlyFit, kAskedByCloud, kCloudLost };

// The name of a reason in receipts, plans and metrics: "asked_by_cloud".
std::string_view name_of(Why why);
// Says why a text moved: "quicker there: 0.06 for 0.10 ms a token". `token_ms`: its last tokens'
// time, `there_ms`: the forecast there; 0: unknown.
std::string move_words(Why why, double token_ms, double there_ms);

}  // namespace split::edge
