// Outside names for the parts of a step: on the wire, in a model's description, in labels of
// metrics. Other programs and dashboards rely on them: none changes. Only the models whose stages
// have these names spell them elsewhere.
#pragma once

#include <string_view>

namespace split::names {

// Phases, in the order of Phase (step/phase.h).
struct PhaseNames {
  std::string_view wire, metric;
};
inline constexpr PhaseNames kPhases[] = {{"prompt", "prefill"}, {"generate", "decode"}};

// How a phase's rows are computed on a device with matrix units: wide always uses these.
inline constexpr std::string_view kNarrow = "narrow", kWide = "wide";

// Rows whose results are wanted (step/wanted.h).
inline constexpr std::string_view kAll = "all", kLast = "last", kNone = "none";

// Stages; those behind the blocks also name the points that they lead to (step/point.h).
inline constexpr std::string_view kEmbed = "embed", kBlock = "block.", kNorm = "norm",
                                  kHead = "head";

}  // namespace split::names
