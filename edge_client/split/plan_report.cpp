#include "edge_client/split/plan_report.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "base/figures.h"
#include "base/json.h"

namespace split::edge {
namespace {

constexpr std::array<std::pair<Goal, std::string_view>, 2> kGoals = {
    {{Goal::kFast, "fast"}, {Goal::kOffload, "offload"}}};

std::string figure(const std::optional<double>& value, int digits = 3) {
  return value ? fixed(*value, digits) : "null";
}

std::string cut_of(const Place& place) { return place.cut ? place.name() : "\"cloud\""; }

std::string speed_json(const std::optional<Speed>& speed) {
  if (!speed) return "null";
  return cat("{\"block_ms\":", fixed(speed->block_ms, 4),
             ",\"block_row_ms\":", fixed(speed->block_row_ms, 4),
             ",\"head_ms\":", fixed(speed->head_ms, 4),
             ",\"prompt_row_ms\":", fixed(speed->prompt_row_ms, 4), "}");
}

std::string place_json(const Place& place) {
  return cat("{\"cut\":", cut_of(place), ",\"fits\":", place.fits ? "true" : "false",
             ",\"first_token_ms\":", figure(place.first_token_ms),
             ",\"token_ms\":", figure(place.token_ms), ",\"cloud_ms\":", figure(place.cloud_ms),
             ",\"download_bytes\":", place.download_bytes,
             ",\"missing_bytes\":", place.missing_bytes,
             ",\"bytes_per_token\":", place.bytes_per_token,
             ",\"dollars_per_million\":", figure(place.dollars_per_million, 6), "}");
}

}  // namespace

std::string_view goal_name(Goal goal) { return kGoals[static_cast<size_t>(goal)].second; }

std::optional<Goal> goal_from_name(std::string_view name) {
  for (const auto& [goal, known] : kGoals) {
    if (known == name) return goal;
  }
  return std::nullopt;
}

std::string to_json(const PlanReport& report) {
  const PlanInput& input = report.input;
  const std::vector<Place> places = price_places(input);
  const Pick pick = pick_place(places, input, report.goal, report.pace);
  const auto of_network = [&](double Network::*figure_of) -> std::optional<double> {
    if (!input.network || !((*input.network).*figure_of > 0)) return std::nullopt;
    return (*input.network).*figure_of;
  };
  const char* const exact = !report.exact ? "null" : *report.exact ? "true" : "false";
  std::string out =
      cat("{\"model\":", json_quote(report.model), ",\"goal\":\"", goal_name(report.goal),
          "\",\"rtt_ms\":", figure(of_network(&Network::rtt_ms)),
          ",\"down_mbit\":", figure(of_network(&Network::down_mbit)),
          ",\"edge\":", speed_json(input.edge), ",\"cloud\":", speed_json(input.cloud),
          ",\"exact\":", exact, ",\"cuts\":[");
  for (const Place& place : places) {
    out += cat(&place == places.data() ? "" : ",", place_json(place));
  }
  return out + cat("],\"pick\":{\"cut\":", cut_of(places[pick.place]), ",\"why\":\"",
                   pick_reason_name(pick.why), "\"}}\n");
}

}  // namespace split::edge
