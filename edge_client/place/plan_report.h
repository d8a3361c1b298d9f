// A plan as one JSON object for a program; null: not measured.
#pragma once

#include <string>

#include "edge_client/place/planner.h"

namespace split::edge {

struct PlanReport {
  std::string model;
  Goal goal = Goal::kFast;
  double pace = 10;           // tokens/s
  std::optional<bool> exact;  // whether every place gives the same text
  PlanInput input;
};

std::string_view goal_name(Goal goal);
std::optional<Goal> goal_from_name(std::string_view name);

// A number in JSON, or null.
std::string or_null(const std::optional<double>& value, int digits = 3);
// {"model","goal","rtt_ms","down_mbit","edge","cloud","exact","cuts":[{"cut","fits",
// "first_token_ms","token_ms","cloud_ms","cloud_percent","download_bytes","missing_bytes","bytes_per_token",
// "state_bytes","dollars_per_million"}],"pick":{"cut","why","reason"}}, and a line's end.
std::string to_json(const PlanReport& report);
// Explains a pick by the figures of the places: "64 tokens take 27.4 ms there; all here 188 ms".
std::string pick_words(const Pick& pick, std::span<const Place> places, double pace);
// A table for a terminal: the places, their costs, and the pick. `device`: this machine's.
std::string to_text(const PlanReport& report, std::string_view device);

}  // namespace split::edge
