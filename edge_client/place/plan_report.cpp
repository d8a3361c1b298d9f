#include "edge_client/place/plan_report.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "base/figures.h"
#include "base/json.h"

namespace split::edge {
namespace {

constexpr std::array<std::pair<Goal, std::string_view>, 2> kGoals = {
    {{Goal::kFast, "fast"}, {Goal::kOffload, "offload"}}};

std::string speed_json(const std::optional<Speed>& speed) {
  if (!speed) return "null";
  return cat("{\"block_ms\":", fixed(speed->block_ms, 4),
             ",\"block_row_ms\":", fixed(speed->block_row_ms, 4),
             ",\"head_ms\":", fixed(speed->head_ms, 4),
             ",\"head_row_ms\":", fixed(speed->head_row_ms, 4),
             ",\"prompt_row_ms\":", fixed(speed->prompt_row_ms, 4),
             ",\"step_ms\":", fixed(speed->step_ms, 4), "}");
}

uint64_t state_bytes_of(const Place& place, const PlanInput& input) {
  if (input.state_bytes.empty() || place.cut.is_cloud()) return 0;
  return input.state_bytes.at(static_cast<size_t>(place.cut.blocks(input.layers)));
}

std::string place_json(const Place& place, const PlanInput& input) {
  return cat("{\"cut\":", place.cut.json(), ",\"fits\":", place.fits ? "true" : "false",
             ",\"first_token_ms\":", or_null(place.first_token_ms),
             ",\"token_ms\":", or_null(place.token_ms), ",\"cloud_ms\":", or_null(place.cloud_ms),
             ",\"cloud_percent\":", cloud_percent(place, input).value_or(0),
             ",\"download_bytes\":", place.download_bytes,
             ",\"missing_bytes\":", place.missing_bytes,
             ",\"bytes_per_token\":", place.bytes_per_token,
             ",\"state_bytes\":", state_bytes_of(place, input),
             ",\"dollars_per_million\":", or_null(place.dollars_per_million, 6), "}");
}

}  // namespace

std::string or_null(const std::optional<double>& value, int digits) {
  return value ? fixed(*value, digits) : "null";
}

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
          "\",\"rtt_ms\":", or_null(of_network(&Network::rtt_ms)),
          ",\"down_mbit\":", or_null(of_network(&Network::down_mbit)),
          ",\"edge\":", speed_json(input.edge), ",\"cloud\":", speed_json(input.cloud),
          ",\"exact\":", exact, ",\"cuts\":[");
  for (const Place& place : places) {
    out += cat(&place == places.data() ? "" : ",", place_json(place, input));
  }
  return out + cat("],\"pick\":{\"cut\":", places[pick.place].cut.json(), ",\"why\":\"",
                   name_of(pick.why),
                   "\",\"reason\":", json_quote(pick_words(pick, places, report.pace)), "}}\n");
}

namespace {

constexpr size_t kMostCuts = 9;  // in the table of a deep model

std::string seconds(const std::optional<double>& ms) {
  return ms ? cat(fixed(*ms / 1000, *ms < 10000 ? 2 : 1), " s") : "-";
}
std::string milliseconds(const std::optional<double>& ms) { return ms ? plan_ms(*ms) : "-"; }

}  // namespace

std::string pick_words(const Pick& pick, std::span<const Place> places, double pace) {
  const Place& picked = places[pick.place];
  if (pick.why == Why::kGoal) {
    return cat("relieves the cloud, still over ", fixed(pace, pace < 10 ? 1 : 0), " tokens/s");
  }
  if (pick.why == Why::kOnlyFit) {
    return std::ranges::count_if(places, &Place::fits) > 1 ? "nothing else was measured"
                                                           : "nothing else fits here";
  }
  if (pick.why != Why::kFastest) return move_words(pick.why, 0, 0);
  // Compares with the fastest other place.
  const Place* next = nullptr;
  for (const Place& place : places) {
    if (&place == &picked || !can_be_picked(place)) continue;
    if (next == nullptr || text_ms(place) < text_ms(*next)) next = &place;
  }
  return cat("64 tokens take ", plan_time(text_ms(picked)), " there",
             picked.missing_bytes > 0 ? " once its weights are here" : "",
             next ? cat("; ", next->cut.words(), " ", plan_time(text_ms(*next))) : "");
}

std::string to_text(const PlanReport& report, std::string_view device) {
  const PlanInput& input = report.input;
  const std::vector<Place> places = price_places(input);
  const Pick pick = pick_place(places, input, report.goal, report.pace);
  std::string out = cat(report.model, " on ", device);
  if (input.network) {
    out +=
        cat(", line of ", fixed(input.network->rtt_ms, input.network->rtt_ms < 10 ? 1 : 0), " ms");
    if (input.network->down_mbit > 0) {
      out += cat(" and ", fixed(input.network->down_mbit, 0), " Mbit/s");
    }
  }
  constexpr size_t kWidths[] = {17, 12, 11, 18, 16}, kFirst = 1, kToken = 2;
  const auto known = [&](std::optional<double> Place::*ms) {
    return std::ranges::any_of(places, [&](const Place& place) { return (place.*ms).has_value(); });
  };
  const bool first = known(&Place::first_token_ms), token = known(&Place::token_ms);
  const auto row = [&](std::string_view mark, std::span<const std::string> cells) {
    out += cat("\n", mark);
    for (size_t i = 0; i < cells.size(); ++i) {
      if ((i == kFirst && !first) || (i == kToken && !token)) continue;
      const std::string space(kWidths[i] - std::min(kWidths[i], cells[i].size()), ' ');
      out += i == 0 ? cells[i] + space : space + cells[i];
    }
  };
  row("  ",
      std::vector<std::string>{"place", "first word", "a token", "in the cloud", "still to fetch"});
  const Place* const quickest = quickest_cut(places);
  const size_t step = (places.size() + kMostCuts - 1) / kMostCuts;
  // From the cloud to this machine.
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t at = i == 0 ? 0 : places.size() - i;
    const Place& place = places[at];
    const bool picked = at == pick.place;
    if (at > 1 && i % step != 0 && !picked && &place != quickest) continue;
    row(picked ? "* " : "  ",
        std::vector<std::string>{place.cut.words(), seconds(place.first_token_ms),
                                 milliseconds(place.token_ms),
                                 cat(cloud_percent(place, input).value_or(0), " % of the work"),
                                 place.fits ? human_bytes(place.missing_bytes) : "does not fit"});
  }
  out += "\n";
  if (!input.edge && !input.cloud) {
    return out + "--measure adds how long a text takes at each place, and picks one.\n";
  }
  if (report.exact) {
    out += !*report.exact ? "A text here may differ from the cloud's at near-ties.\n"
           : !input.highest.is_cloud()
               ? "A text is the same at every cut below the tail, bit for bit.\n"
               : "A text is the same here and on the cloud, bit for bit.\n";
  }
  std::string words = plan_words(places, input);
  words[0] = 'A';  // "All on the cloud: ..."
  return out + cat(words, ".\nGoing to \"", places[pick.place].cut.words(),
                   "\": ", pick_words(pick, places, report.pace), ".\n");
}

}  // namespace split::edge
