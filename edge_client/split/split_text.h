// Generates from a split model, for one run of the program and for its server: a text, and the
// final states of one, each as its own session of the cloud. Knows neither where the words go nor
// what else runs.
#pragma once

#include <optional>

#include "edge_client/split/placement.h"
#include "edge_client/split/split_forward.h"

namespace split::edge {

// The parts that it runs with; all of them outlive the call.
struct SplitRun {
  CloudLink& cloud;  // for this text alone
  const Placement& place;
  Batcher* tail;  // null when nothing runs here
  const Model& model;
  const Tokenizer* tokenizer;  // null: ids only
  const RetryOptions& retry;
  Waiter& waiter;
  Requester requester = {};
};

// As generate(), counted. Throws as it does, and RemoteError.
Generated generate_text(const SplitRun& run, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const OnText& on_text, SplitCounts& counts);

// Returns the final norm's output for each token, [tokens, C].
std::vector<float> final_states(const SplitRun& run, std::span<const int32_t> tokens,
                                SplitCounts& counts);

}  // namespace split::edge
