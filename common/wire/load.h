// The load of a model as its cloud reports it (GET /v1/models/{id}/load): how busy it is, and what
// its rows cost. One list names the costs for writing and reading.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "wire/load_note.h"

namespace split::wire {

// Milliseconds of a step: without its rows, through one block and through the head, of each row in
// it, and of a prompt's row in one block.
struct StepCosts {
  double block_ms = 0, block_row_ms = 0, head_ms = 0, head_row_ms = 0, prompt_row_ms = 0;
};
// Calls `visit` with the name and the value of each cost. An edge's own speeds use these names,
// too.
template <typename Costs, typename Visit>
void visit_costs(Costs& costs, const Visit& visit) {
  visit("block_ms", costs.block_ms);
  visit("block_row_ms", costs.block_row_ms);
  visit("head_ms", costs.head_ms);
  visit("head_row_ms", costs.head_row_ms);
  visit("prompt_row_ms", costs.prompt_row_ms);
}

struct Load {
  double busy = 0;  // share of time in which a step ran
  uint64_t queue_depth = 0, sessions = 0, kv_free_bytes = 0;
  std::optional<double> p50_ms, p99_ms;  // recent steps'
  std::optional<StepCosts> costs;        // once measured
  LoadNote note;
  std::optional<double> price_hour, price_egress_gb;  // if the cloud reports them
};
std::string to_json(const Load& load);
// Parses a load; figures that are absent or negative count as unknown. Throws Error(kInput).
Load parse_load(std::string_view json);

}  // namespace split::wire
