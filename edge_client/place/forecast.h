// Compares what an answer was expected to take where it ran with what it took, and lets the next
// plan learn from that. Knows no clock and no file: it is told of each token, and of what was
// measured.
#pragma once

#include <optional>
#include <string>

#include "edge_client/place/counts.h"
#include "edge_client/place/planner.h"

namespace split::edge {

// The costs of a token at one place, as a receipt names them; none where nobody knows.
struct TokenCosts {
  std::optional<double> first_token_ms, token_ms, cloud_ms, bytes, dollars_per_million;
};

// A receipt's plan: the place where the text ended, and how well it was foreseen.
struct Forecast {
  std::optional<int> cut;  // none: all on the cloud
  Goal goal = Goal::kFast;
  Why why = Why::kAsked;
  TokenCosts predicted, actual;
  std::optional<double>
      here_ms;  // a token's with all here, where it stayed away from that for speed

  // |predicted - actual| / actual of a token's time.
  std::optional<double> error() const;
};

// Dollars of an answer, and what it would have cost with all of it on the cloud.
struct AnswerCost {
  double cloud = 0, egress = 0, weights = 0;
  std::optional<double> all_cloud;
  std::optional<double> break_even_tokens;  // none: never at these prices
  Prices prices;
};

// Counts what a text takes at the place where it is, since it came there.
class AnswerWatch {
 public:
  // It has another token, after so many ms.
  void token(const SplitCounts& counts, double ms);

  uint64_t tokens() const { return tokens_; }    // behind the first one there
  std::optional<double> first_token_ms() const;  // where the text began there
  double token_ms() const;                       // each, as all below
  double cloud_ms() const { return each(&Mark::cloud_ms); }
  double wire_ms() const { return each(&Mark::wire_ms); }
  double edge_ms() const { return token_ms() - cloud_ms() - wire_ms(); }
  double bytes_down() const { return each(&Mark::bytes_down); }
  Drafted drafted() const;

 private:
  struct Mark {
    double ms = 0, cloud_ms = 0, wire_ms = 0, bytes_down = 0, steps = 0, drafted = 0;
    size_t moves = 0;
  };
  double each(double Mark::*figure) const;

  Mark from_, last_;
  double first_ms_ = 0;
  bool begun_ = false;
  uint64_t tokens_ = 0;
};

// A text that has ended, for the reason of its last place.
struct EndedInput {
  std::optional<Why> moved = {};        // its last move's; none: it stayed where it began
  bool chosen = false;                  // the place was; else somebody named it
  std::optional<int> cut = {};          // none: the cloud
  std::optional<double> token_ms = {};  // of its last tokens; none: it has too few
  // Cut from which on the weights are here, where texts choose among the places that have landed,
  // and the cut of the next one, where there is a choice.
  std::optional<int> lowest = {};
  std::optional<std::optional<int>> begins = {};
};
Why why_there(const EndedInput& text, PlanInput input, Goal goal, double pace);

// Compares what was foreseen with an answer that ran at `cut`.
Forecast forecast_of(const PlanInput& input, std::optional<int> cut, const AnswerWatch& watch);
// Moves the facts' corrections towards it; a text of few tokens says nothing.
void learn(PlanFacts& facts, const PlanInput& input, std::optional<int> cut,
           const AnswerWatch& watch);

// The money of an answer whose counts these are, with `weights` bytes downloaded for it.
AnswerCost cost_of(const PlanInput& input, std::optional<int> cut, const SplitCounts& counts,
                   uint64_t weights, size_t prompt_tokens, size_t tokens);

}  // namespace split::edge
