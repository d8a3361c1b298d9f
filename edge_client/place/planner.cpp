#include "edge_client/place/planner.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/figures.h"
#include "edge_client/place/counts.h"

namespace split::edge {
namespace {

// Bytes of a step beside its rows: headers and frames, measured at a cut of the bundled model.
constexpr uint64_t kStepBytesDown = 330, kStepBytesUp = 320;
constexpr double kFirstTokenOver = 64;  // tokens
constexpr double kBetter = 0.9;
constexpr std::chrono::seconds kSteady{3};
constexpr double kFirstRate = 0.8, kNextRate = 0.3, kMostCorrection = 10;
constexpr double kExtraMs = 1;  // upper bound of waking threads and sampling, beside the work
constexpr double kMostExtraMs = 10;
constexpr double kFaded = 0.65;  // leaves a hundredth after ten answers

double transfer_ms(uint64_t bytes, double mbit) {
  return mbit > 0 ? static_cast<double>(bytes) * 8e-3 / mbit : 0;
}

double work_ms(const Speed& speed, int blocks, bool head, double rows = 1) {
  const double more = rows - 1;
  return blocks * (speed.block_ms + more * speed.block_row_ms) +
         (head ? speed.head_ms + more * speed.head_row_ms : 0);
}

double prompt_ms(const Speed& speed, uint32_t rows, int blocks, bool head) {
  return blocks * rows * speed.prompt_row_ms + (head ? speed.head_ms : 0);
}

// Time of a session's step: the round trip, and the bytes of the request and the answer.
double trip_ms(const Network& network, uint64_t bytes_down) {
  return network.rtt_ms + network.step_ms + transfer_ms(bytes_down, network.down_mbit) +
         transfer_ms(kStepBytesUp, network.up_mbit);
}

std::optional<double> dollars(const Place& place, const std::optional<Prices>& prices) {
  if (!prices || !place.cloud_ms) return std::nullopt;
  return 1e6 * (*place.cloud_ms * prices->hour / 3.6e6 +
                static_cast<double>(place.bytes_per_token) * prices->egress_gb / 1e9);
}

double score(const Place& place) {
  return *place.token_ms + *place.first_token_ms / kFirstTokenOver;
}

}  // namespace

bool can_be_picked(const Place& place) {
  return place.fits && place.token_ms && place.first_token_ms;
}

double text_ms(const Place& place) { return kFirstTokenOver * score(place); }

bool is_better(double ms, double than_ms) { return ms <= kBetter * than_ms; }

double Learnt::of(double measured_ms) const {
  if (!(measured_ms > 0)) return 0;
  return std::max(measured_ms / kMostCorrection, factor * measured_ms + extra_ms);
}

void Learnt::learn(double measured_ms, double taken_ms) {
  if (!(measured_ms > 0) || !std::isfinite(taken_ms) || !(taken_ms > 0)) return;
  const bool first = factor == 1 && extra_ms == 0;
  const double too_much = of(measured_ms) - taken_ms, slower = of(measured_ms) - measured_ms;
  if (too_much > 0 && slower > 0) {
    const double kept = 1 - kNextRate * std::min(1.0, too_much / slower);
    factor = 1 + kept * (factor - 1);
    extra_ms *= kept;
    if (too_much <= slower) return;
  }
  // A normalised gradient step on both, whose scales differ.
  const double step = (first ? kFirstRate : kNextRate) * (taken_ms - of(measured_ms)) /
                      (measured_ms * measured_ms + kExtraMs * kExtraMs);
  factor = std::clamp(factor + step * measured_ms, 1 / kMostCorrection, kMostCorrection);
  extra_ms = std::clamp(extra_ms + step * kExtraMs * kExtraMs, -kMostExtraMs, kMostExtraMs);
}

void Learnt::fade() {
  factor = std::min(factor, 1 + kFaded * (factor - 1));
  extra_ms = std::min(extra_ms, kFaded * extra_ms);
}

namespace {

Place price_cloud(const PlanInput& input) {
  Place cloud;
  cloud.cut = Cut::cloud();
  cloud.bytes_per_token = kStepBytesDown;  // an event
  if (!input.cloud) return cloud;
  const double down = input.network ? transfer_ms(kStepBytesDown, input.network->down_mbit) : 0;
  const double work = work_ms(*input.cloud, input.layers, true);
  cloud.cloud_ms = input.correction.cloud.of(work);
  cloud.token_ms = input.correction.stream.of(std::max({down, work, input.cloud->busy_step_ms}));
  if (input.network) {
    cloud.first_token_ms = input.correction.wire.of(input.network->rtt_ms) +
                           input.correction.stream.of(
                               prompt_ms(*input.cloud, input.prompt_tokens, input.layers, true));
  }
  return cloud;
}

Place price_here(const PlanInput& input) {
  Place here;
  here.cut = 0;
  here.cloud_ms = here.wire_ms = 0;
  if (!input.edge) return here;
  here.edge_ms = input.correction.edge.of(
      work_ms(*input.edge, input.layers, true, input.local.rows) / input.local.tokens);
  here.token_ms = here.edge_ms;
  here.first_token_ms =
      input.correction.edge.of(prompt_ms(*input.edge, input.prompt_tokens, input.layers, true));
  return here;
}

Place price_cut(const PlanInput& input, int cut) {
  const uint64_t row = input.row_bytes(cut);
  const auto& [rows, tokens] = input.split;
  Place place;
  place.cut = cut;
  const double down = rows * static_cast<double>(row) + kStepBytesDown;
  place.bytes_per_token = static_cast<uint64_t>(down / tokens);
  if (input.cloud) {
    const double work = work_ms(*input.cloud, cut, input.head_on_cloud, rows);
    place.cloud_ms = input.correction.cloud.of(work / tokens) + input.cloud->step_ms / tokens;
  }
  if (input.network) {
    double trips = trip_ms(*input.network, static_cast<uint64_t>(down));
    if (input.head_on_cloud) {
      const double logits = rows * static_cast<double>(input.logits_bytes);
      trips += trip_ms(*input.network, static_cast<uint64_t>(logits) + kStepBytesDown);
      place.bytes_per_token += static_cast<uint64_t>(logits / tokens);
    }
    place.wire_ms = input.correction.wire.of(trips / tokens);
  }
  if (input.edge) {
    place.edge_ms = input.correction.edge.of(
        work_ms(*input.edge, input.layers - cut, !input.head_on_cloud, rows) / tokens);
  }
  if (!place.cloud_ms || !place.wire_ms || !place.edge_ms) return place;
  place.token_ms = *place.cloud_ms + *place.wire_ms + *place.edge_ms;
  // The session is opened first.
  const Network& network = *input.network;
  place.first_token_ms =
      input.correction.wire.of(network.rtt_ms + trip_ms(network, row * input.prompt_tokens)) +
      input.correction.cloud.of(prompt_ms(*input.cloud, input.prompt_tokens, cut, false)) +
      input.correction.edge.of(
          prompt_ms(*input.edge, input.prompt_tokens, input.layers - cut, true));
  return place;
}

}  // namespace

std::vector<Place> price_places(const PlanInput& input) {
  std::vector<Place> places{price_cloud(input)};
  places[0].fits = input.highest.is_cloud();
  for (int cut = 0; cut <= input.layers; ++cut) {
    Place& place = places.emplace_back(cut == 0 ? price_here(input) : price_cut(input, cut));
    place.download_bytes = input.download_bytes.at(static_cast<size_t>(cut));
    place.missing_bytes = input.missing_bytes.at(static_cast<size_t>(cut));
    place.fits =
        place.download_bytes <= input.most_bytes && cut >= input.lowest && cut <= input.highest;
  }
  for (Place& place : places) place.dollars_per_million = dollars(place, input.prices);
  return places;
}

Pick pick_place(std::span<const Place> places, const PlanInput& input, Goal goal, double pace) {
  std::vector<size_t> open;
  for (size_t i = 0; i < places.size(); ++i) {
    if (can_be_picked(places[i])) open.push_back(i);
  }
  if (open.empty()) {
    return {input.highest.is_cloud() ? 0 : 1 + static_cast<size_t>(input.highest.blocks()),
            Why::kOnlyFit};
  }
  const auto keeps_pace = [&](size_t i) { return *places[i].token_ms * pace <= 1000; };
  const auto less_time = [&](size_t a, size_t b) { return score(places[a]) < score(places[b]); };
  const auto less_cloud = [&](size_t a, size_t b) {
    const double left = *places[a].cloud_ms, right = *places[b].cloud_ms;
    return left != right ? left < right : less_time(a, b);
  };
  const auto best_of = [&](std::span<const size_t> some) -> Pick {
    std::vector<size_t> quick;
    std::ranges::copy_if(some, std::back_inserter(quick), keeps_pace);
    if (goal == Goal::kOffload && !quick.empty()) {
      return {*std::ranges::min_element(quick, less_cloud), Why::kGoal};
    }
    return {*std::ranges::min_element(some, less_time), Why::kFastest};
  };
  Pick own = best_of(open);
  if (open.size() == 1) own.why = Why::kOnlyFit;
  if (!input.want) return own;
  if (places[own.place].cut <= *input.want) return own;
  std::vector<size_t> asked;
  std::ranges::copy_if(open, std::back_inserter(asked),
                       [&](size_t i) { return places[i].cut <= *input.want && keeps_pace(i); });
  if (asked.empty()) return own;
  return {best_of(asked).place, Why::kAskedByCloud};
}

std::optional<int> cloud_percent(const Place& place, const PlanInput& input) {
  const auto layers = static_cast<uint64_t>(place.cut.blocks(input.layers));
  return cloud_percent({1, layers, 1, place.cut.is_cloud() ? 1u : 0u}, input.layers,
                       input.head_blocks);
}

std::string plan_ms(double ms) { return cat(fixed(ms, ms < 100 ? 1 : 0), " ms"); }

std::string plan_time(double ms) {
  return ms < 1000 ? plan_ms(ms) : cat(fixed(ms / 1000, ms < 1e4 ? 1 : 0), " s");
}

const Place* quickest_cut(std::span<const Place> places) {
  const Place* quickest = nullptr;
  for (const Place& place : places.subspan(2)) {
    if (!place.fits || !place.token_ms) continue;
    if (quickest == nullptr || *place.token_ms < *quickest->token_ms) quickest = &place;
  }
  return quickest;
}

std::string plan_words(std::span<const Place> places, const PlanInput& input) {
  const Place &cloud = places[0], &here = places[1];
  std::string words = "all on the cloud: ";
  words += cloud.token_ms ? cat(plan_ms(*cloud.token_ms), " a token") : "not measured";
  if (const Place* quickest = quickest_cut(places)) {
    words += cat("; the quickest cut, ", quickest->cut.name(), ": ", plan_ms(*quickest->token_ms));
  }
  if (!here.fits) return words + "; all here would not fit";
  words += cat("; all here: ", here.token_ms ? plan_ms(*here.token_ms) : "not measured");
  if (here.missing_bytes > 0) {
    words += cat(" after ", human_bytes(here.missing_bytes));
    if (input.network && input.network->down_mbit > 0) {
      const double wait = transfer_ms(here.missing_bytes, input.network->down_mbit);
      words += cat(" (", plan_time(wait), ")");
    }
  }
  return words;
}

std::optional<double> break_even_tokens(const Place& all_cloud, const Place& place,
                                        const Prices& prices) {
  const auto of_token = [&](const Place& at) { return dollars(at, prices); };
  const std::optional<double> before = of_token(all_cloud), after = of_token(place);
  if (!before || !after || *after >= *before) return std::nullopt;
  const double download = static_cast<double>(place.download_bytes) * prices.egress_gb / 1e9;
  return 1e6 * download / (*before - *after);
}

size_t SteadyPick::update(std::span<const Place> places, const Pick& pick, Clock::time_point now) {
  const auto change = [&] {
    at_ = pick.place;
    changed_ = now;
  };
  if (!at_ || *at_ >= places.size() || !can_be_picked(places[*at_])) {
    change();
  } else if (pick.place != *at_ && now - changed_ >= kSteady) {
    const bool better = can_be_picked(places[pick.place]) &&
                        is_better(score(places[pick.place]), score(places[*at_]));
    if (better || pick.why == Why::kGoal || pick.why == Why::kAskedByCloud) change();
  }
  return *at_;
}

}  // namespace split::edge
