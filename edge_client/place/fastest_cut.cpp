#include "edge_client/place/fastest_cut.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/figures.h"

namespace split::edge {
namespace {

// How long a lost cloud is avoided, at first and at most.
constexpr std::chrono::seconds kAway{10}, kLongAway{300};

std::string rounded_ms(double ms) { return fixed(ms, ms < 10 ? 1 : 0); }

}  // namespace

std::optional<FastestCut::Now> FastestCut::at(PlanInput input, int lowest, Moment now) {
  input.lowest = lowest;
  const std::vector<Place> places = price_places(input);
  const Place &cloud = places[0], &here = places[1];
  if (!here.token_ms) return std::nullopt;
  Now chosen;
  chosen.begin = Cut::cloud();
  chosen.cloud_ms = cloud.token_ms;
  chosen.without_cloud = until_ && now < *until_ && lowest == 0;
  const auto quicker = [&](const Place& place) {
    const double cloud_ms = input.cloud ? place.cut.blocks() * input.cloud->prompt_row_ms : 0;
    const double edge_ms = (input.layers - place.cut.blocks()) * input.edge->prompt_row_ms;
    return FasterCut{place.cut, *place.token_ms, cloud_ms + edge_ms};
  };
  if (lowest == 0) chosen.here = quicker(here);
  if (std::exchange(lowest_, lowest) != lowest) steady_ = {};
  if (can_be_picked(cloud)) {
    const Pick pick = pick_place(places, input, Goal::kFast, 0);
    const Place& quickest = places[pick.place];
    if (!quickest.cut.is_cloud()) chosen.here = quicker(quickest);
    chosen.begin = places[steady_.update(places, pick, now)].cut;
  } else if (lowest == 0) {
    chosen.begin = 0;
  }
  if (chosen.without_cloud) chosen.begin = 0;
  return chosen;
}

void FastestCut::ended(bool lost_cloud, bool on_cloud, Moment now) {
  if (lost_cloud) {
    away_ = std::clamp(2 * away_, kAway, kLongAway);
    until_ = now + away_;
  } else if (on_cloud) {
    away_ = {};
    until_.reset();
  }
}

std::string staying_words(const FasterCut& here, double cloud_ms) {
  return cat(here.cut.words(), " would take ", rounded_ms(here.token_ms),
             " ms a token; the last ones took ", rounded_ms(cloud_ms), ": staying on the cloud");
}

std::string words_of(const FastestCut::Now& now) {
  if (!now.here || !now.cloud_ms || now.without_cloud) return "";
  return cat(now.here->cut.words(), " would take ", rounded_ms(now.here->token_ms),
             " ms a token, the cloud ", rounded_ms(*now.cloud_ms), " (foreseen): ",
             now.begin.is_cloud() ? "staying on the cloud"
             : now.begin == 0     ? "texts begin here"
                                  : cat("texts begin at ", now.begin.words()));
}

}  // namespace split::edge
