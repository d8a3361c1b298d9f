// Chooses the fastest place for texts, among the cloud and the cuts whose weights are here: where
// the next one begins, and where a running one may move. Has no clock: callers pass the time.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "edge_client/place/decision.h"
#include "edge_client/place/planner.h"

namespace split::edge {

// One thread at a time.
class FastestCut {
 public:
  struct Now {
    Cut begin;                   // cut of the next text
    bool without_cloud = false;  // because the cloud was lost lately
    // The fastest cut; all here if the cloud is faster. nullopt while that is impossible.
    std::optional<FasterCut> here;
    std::optional<double> cloud_ms;  // time of a streamed token; none: unknown
  };

  // Chooses with the weights from the cut `lowest` on; new weights count at once. None if their
  // speed is unknown. If the cloud's is unknown, texts begin here once all weights are.
  std::optional<Now> at(PlanInput input, int lowest, Moment now);
  // Notes that a text has ended. If it lost the cloud, the next ones begin here for a while if all
  // weights are here; longer each time, until a text ends on the cloud.
  void ended(bool lost_cloud, bool on_cloud, Moment now);

 private:
  SteadyPick steady_;
  int lowest_ = 0;                // the last choice's
  std::chrono::seconds away_{0};  // length of the present or last absence
  std::optional<Moment> until_;   // its end
};

// Explains a text that stays on the cloud at so many ms a token: "all here would take 2.9 ms a
// token; the last ones took 0.4: staying on the cloud".
std::string staying_words(const FasterCut& here, double cloud_ms);
// "all here would take 2.9 ms a token, the cloud 66 (foreseen): texts begin here"; empty if there
// is no choice.
std::string words_of(const FastestCut::Now& now);

}  // namespace split::edge
