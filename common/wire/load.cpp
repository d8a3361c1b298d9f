#include "wire/load.h"

#include <algorithm>

#include "base/json.h"

namespace split::wire {
namespace {

constexpr double kMostFigure = 1e15;  // a count of this size is exact in a double

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

std::optional<double> figure(const Json& object, std::string_view name) {
  const Json& value = object.at(name);
  const double number = value.is_number() ? value.get<double>() : -1;
  return number >= 0 && number <= kMostFigure ? std::optional(number) : std::nullopt;
}

uint64_t count(const Json& object, std::string_view name) {
  return static_cast<uint64_t>(figure(object, name).value_or(0));
}

}  // namespace

std::string to_json(const Load& load) {
  Json json = {
      {"busy", load.busy},
      {"queue_depth", load.queue_depth},
      {"sessions", load.sessions},
      {"kv_free_bytes", load.kv_free_bytes},
      {"step_ms", {{"p50", or_null(load.p50_ms)}, {"p99", or_null(load.p99_ms)}}},
      {"want", load.note.want ? Json(*load.note.want) : Json()},
      {"price", load.note.price},
      {"draft", load.note.draft},
      {"prices",
       {{"hour", or_null(load.price_hour)}, {"egress_gb", or_null(load.price_egress_gb)}}}};
  const StepCosts costs = load.costs.value_or(StepCosts{});
  visit_costs(costs,
              [&](const char* name, double ms) { json.add(name, load.costs ? Json(ms) : Json()); });
  return json.dump();
}

Load parse_load(std::string_view text) {
  const Json json = parse_json(text, 8, "the load");
  const Json &step = json.at("step_ms"), &prices = json.at("prices");
  Load load;
  load.busy = figure(json, "busy").value_or(0);
  load.queue_depth = count(json, "queue_depth");
  load.sessions = count(json, "sessions");
  load.kv_free_bytes = count(json, "kv_free_bytes");
  load.p50_ms = figure(step, "p50");
  load.p99_ms = figure(step, "p99");
  load.price_hour = figure(prices, "hour");
  load.price_egress_gb = figure(prices, "egress_gb");
  if (figure(json, "block_ms") && figure(json, "head_ms")) {
    visit_costs(load.costs.emplace(),
                [&](const char* name, double& ms) { ms = figure(json, name).value_or(0); });
  }
  if (const auto want = figure(json, "want"); want && *want <= kMostCut) {
    load.note.want = static_cast<int>(*want);
  }
  load.note.price = std::min(1.0, figure(json, "price").value_or(0));
  load.note.draft =
      static_cast<int>(std::min<double>(kMostDraft, figure(json, "draft").value_or(kMostDraft)));
  return load;
}

}  // namespace split::wire
