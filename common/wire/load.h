// The load of a model as its cloud tells it (GET /v1/models/{id}/load): how busy it is, and what
// its rows cost. One list names the costs wherever they are written and read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "wire/load_note.h"

namespace split::wire {

// Milliseconds of a step beside its rows, through one block and through the head, of each row in
// it, and of a prompt's row in one block.
struct StepCosts {
  double block_ms = 0, block_row_ms = 0, head_ms = 0, head_row_ms = 0, prompt_row_ms = 0;
};
// Calls `visit` with the name and the value of each cost; an edge's own speeds have the same names.
template <typename Costs, typename Visit>
void visit_costs(Costs& costs, const Visit& visit) {
  visit("block_ms", costs.block_ms);
  visit("block_row_ms", costs.block_row_ms);
  visit("head_ms", costs.head_ms);
  visit("head_row_ms", costs.head_row_ms);
  visit("prompt_row_ms", costs.prompt_row_ms);
}

struct Load {
  double busy = 0;  // the part of the time in which a step ran
  uint64_t queue_depth = 0, sessions = 0, kv_free_bytes = 0;
  std::optional<double> p50_ms, p99_ms;  // of the steps lately
  std::optional<StepCosts> costs;        // once they were measured
  LoadNote note;
  std::optional<double> price_hour, price_egress_gb;  // where the cloud names them
};
std::string to_json(const Load& load);
// Reads a load; a figure that is absent or below 0 is as not said. Throws Error(kInput) for what is
// no load.
Load parse_load(std::string_view json);

}  // namespace split::wire
