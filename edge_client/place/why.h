// The reasons for a place: why a text's cut moves, or why a plan picks a cut.
#pragma once

#include <cstdint>
#include <string_view>

namespace split::edge {

enum class Why : uint8_t { kAsked, kLanded, kFastest, kGoal, kOnlyFit, kAskedByCloud, kCloudLost };

// The word that receipts, plans and metrics have for it: "asked_by_cloud".
std::string_view name_of(Why why);

}  // namespace split::edge
