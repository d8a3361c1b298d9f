// Chooses the place of texts that are to be fast, among the cloud and the places whose weights are
// here: where the next one begins, and where one that runs may go on. Knows no clock: it is told
// the time.
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
  using Time = Clock::time_point;
  struct Now {
    std::optional<int> begin;    // cut of the next text; none: all on the cloud
    bool without_cloud = false;  // that is since it was lost
    // The quickest place, or where that is the cloud, all here: which needs none. None while that
    // cannot be.
    std::optional<FasterCut> here;
    std::optional<double> cloud_ms;  // that a token takes in a stream; none: nobody knows
  };

  // The weights from the cut `lowest` on are here; what has landed is chosen at once. None where
  // nobody knows what these take. Where nobody knows that of the cloud, texts begin here once all
  // weights are.
  std::optional<Now> at(PlanInput input, int lowest, Time now);
  // A text has ended: where it lost the cloud, the next ones begin here for a while, if all weights
  // are; longer each time, until one is on the cloud again.
  void ended(bool lost_cloud, bool on_cloud, Time now);

 private:
  SteadyPick steady_;
  int lowest_ = 0;                // of the last choice
  std::chrono::seconds away_{0};  // as long as that, the last time,
  std::optional<Time> until_;     // and until then
};

// Says of a text whose last tokens came from the cloud, each in so many ms: "all here would take
// 2.9 ms a token; the last ones took 0.4: staying on the cloud".
std::string staying_words(const FasterCut& here, double cloud_ms);
// "all here would take 2.9 ms a token, the cloud 66 (foreseen): texts begin here"; empty where
// there is nothing to choose from.
std::string words_of(const FastestCut::Now& now);

}  // namespace split::edge
