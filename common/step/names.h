// Names that the parts of a step have outside of this program: on the wire, in a model's
// description, in labels of metrics. Other programs and dashboards rely on them: none changes. No
// other file spells them, but for the models whose stages have these names.
#pragma once

#include <string_view>

namespace split::names {

// Phases, in the order of Phase (step/phase.h).
struct PhaseNames {
  std::string_view wire, metric;
};
inline constexpr PhaseNames kPhases[] = {{"prompt", "prefill"}, {"generate", "decode"}};

// How a phase's rows are computed where a device has matrix units: wide is always by these.
inline constexpr std::string_view kNarrow = "narrow", kWide = "wide";

// Rows whose results are wanted (step/wanted.h).
inline constexpr std::string_view kAll = "all", kLast = "last", kNone = "none";

// Stages, and of those behind the blocks also the points that they lead to (step/point.h).
inline constexpr std::string_view kEmbed = "embed", kBlock = "block.", kNorm = "norm",
                                  kHead = "head";

}  // namespace split::names
