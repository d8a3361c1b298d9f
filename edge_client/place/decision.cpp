#include "edge_client/place/decision.h"

#include <algorithm>
#include <array>

#include "edge_client/place/planner.h"

namespace split::edge {
namespace {

// Consecutive slow runs before a text moves for speed: one late token is no reason.
constexpr int kSlowRuns = 2;
// Past rows that the token behind a move may have to bring.
constexpr double kLagRows = 8;

// Whether tokens keep the pace; true while their time is unknown.
bool keeps_pace(const PlaceInput& in) { return !in.token_ms || *in.token_ms * in.pace <= 1000; }

bool goes_for(const PlaceInput& in, Why why) { return in.going && in.going->why == why; }

uint32_t rows_lacking(const PlaceInput& in, Cut cut) {
  const bool begun = in.going && in.going->cut == cut;
  return in.rows - (begun ? std::min(in.rows, in.prepared_rows) : 0);
}

// Layer rows that a move saves the cloud, less its cost: past rows through the blocks that stay
// there, and preparations for another cut in vain. A cut that the whole model will soon replace
// saves only until then.
double saves_cloud(const PlaceInput& in, Cut cut) {
  double tokens = in.tokens_left;
  if (cut > 0 && in.whole_ms) {
    tokens = in.token_ms ? std::min(tokens, *in.whole_ms / std::max(*in.token_ms, 1e-3)) : 0;
  }
  const bool thrown = in.going && in.going->cut != cut;
  const int blocks = cut.blocks(in.layers);
  return (in.cut.blocks(in.layers) - blocks) * tokens - double{1} * blocks * rows_lacking(in, cut) -
         (thrown ? static_cast<double>(in.prepared_layer_rows) : 0);
}

// Whether the tokens behind a move save more time than it takes. Tokens during its preparation save
// nothing.
bool saves_time(const PlaceInput& in, const FasterCut& there) {
  if (!in.token_ms || !(*in.token_ms > 0)) return true;
  const double meanwhile = rows_lacking(in, there.cut) * there.row_ms / *in.token_ms;
  return (in.tokens_left - meanwhile) * (*in.token_ms - there.token_ms) > kLagRows * there.row_ms;
}

// The rules. Each returns a place, or nothing.

std::optional<Decision> as_named(const PlaceInput& in) {
  if (!in.named && !goes_for(in, Why::kGoal)) return std::nullopt;
  return in.going ? in.going : Decision{in.cut, Why::kAsked};
}

std::optional<Decision> back_to_cloud(const PlaceInput& in) {
  if (goes_for(in, Why::kFastest) && in.going->cut > in.cut) return in.going;
  if (!in.cloud_is_back || !in.fled_from || in.going || in.cut > 0) return std::nullopt;
  const bool better = in.fled_token_ms && in.token_ms && is_better(*in.fled_token_ms, *in.token_ms);
  if (!better) return std::nullopt;
  return Decision{*in.fled_from, Why::kFastest};
}

std::optional<Decision> back_for_pace(const PlaceInput& in) {
  if (!in.came_from || keeps_pace(in)) return std::nullopt;
  return Decision{*in.came_from, Why::kGoal};
}

std::optional<Decision> spares_cloud(const PlaceInput& in) {
  if (!in.offloads || !in.lowest) return std::nullopt;
  std::optional<Decision> best;
  double most = 0;
  const auto look = [&](Cut cut) {
    if (cut >= in.cut || (cut > 0 && cut < in.lowest_quick)) return;
    if (const double saved = saves_cloud(in, cut); saved > most) {
      most = saved;
      best = {cut, Why::kLanded};
    }
  };
  look(*in.lowest);
  if (goes_for(in, Why::kLanded)) look(in.going->cut);
  return best;
}

std::optional<Decision> follows_wish(const PlaceInput& in) {
  if (!in.lowest) return std::nullopt;
  const Cut own = in.before_wish.value_or(in.cut);
  const int lowest = std::max(*in.lowest, in.lowest_quick);
  const Cut cut = in.want ? std::min(own, Cut(std::max(*in.want, lowest))) : own;
  if (cut == in.cut && !goes_for(in, Why::kAskedByCloud)) return std::nullopt;
  return Decision{cut, Why::kAskedByCloud};
}

// Never beyond the cut that the cloud asks for.
std::optional<Decision> is_quicker(const PlaceInput& in) {
  if (!in.quicker || in.quicker->cut >= in.cut || in.slow_runs < kSlowRuns) return std::nullopt;
  if ((in.want && in.quicker->cut > *in.want) || !saves_time(in, *in.quicker)) return std::nullopt;
  return Decision{in.quicker->cut, Why::kFastest};
}

// The first rule with an answer decides.
constexpr std::array kRules = {back_to_cloud, as_named,     back_for_pace,
                               spares_cloud,  follows_wish, is_quicker};

}  // namespace

std::optional<Decision> next_place(const PlaceInput& in) {
  for (const auto& rule : kRules) {
    const std::optional<Decision> decision = rule(in);
    if (decision) return decision->cut == in.cut ? std::nullopt : decision;
  }
  return std::nullopt;
}

bool may_switch(const PlaceInput& in) {
  const auto passed = [](const std::optional<double>& since, double ms) {
    return !since || *since >= ms;
  };
  const bool landed = goes_for(in, Why::kLanded);
  if (landed && in.going->cut != 0 && !keeps_pace(in)) return false;
  if (goes_for(in, Why::kAskedByCloud) && !passed(in.since_wish_ms, in.between_wishes_ms)) {
    return false;
  }
  const bool at_once = in.at_its_token || landed || goes_for(in, Why::kAsked);
  return at_once || passed(in.since_move_ms, in.between_ms);
}

AfterLoss after_loss(const LossInput& in) {
  const bool gone = in.silent || in.other_model;
  if (!in.leaves || in.cut == 0 || !gone) return AfterLoss::kRetry;
  if (in.whole) return AfterLoss::kLeave;
  const bool lost = in.silent && in.since >= loss_patience(in.budget);
  return lost && !in.in_vain ? AfterLoss::kRescue : AfterLoss::kRetry;
}

}  // namespace split::edge
