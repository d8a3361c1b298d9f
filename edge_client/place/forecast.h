// Compares the forecast of an answer with the outcome, and corrects later plans by it. Has no clock
// and no file: callers pass each token and what was measured.
#pragma once

#include <optional>

#include "edge_client/place/counts.h"
#include "edge_client/place/planner.h"

namespace split::edge {

// The costs of a token at one place, under their names in a receipt; none: unknown.
struct TokenCosts {
  std::optional<double> first_token_ms, token_ms, cloud_ms, bytes, dollars_per_million;
};

// A receipt's plan: the place where the text ended, and the forecast for it.
struct Forecast {
  Cut cut;
  Goal goal = Goal::kFast;
  Why why = Why::kAsked;
  TokenCosts predicted, actual;
  std::optional<double>
      here_ms;  // a token's with all here, where it stayed away from that for speed

  // |predicted - actual| / actual of a token's time.
  std::optional<double> error() const;
};

// Dollars of an answer, and of the same answer with everything on the cloud.
struct AnswerCost {
  double cloud = 0, egress = 0, weights = 0;
  std::optional<double> all_cloud;
  std::optional<double> break_even_tokens;  // nullopt: never at these prices
  Prices prices;
};

// Measures a text at its place, from when it came there.
class AnswerWatch {
 public:
  // Counts another token, after so many ms of text.
  void token(const SplitCounts& counts, double ms);

  uint64_t tokens() const { return tokens_; }  // after the first one there
  // None: it moved there.
  std::optional<double> first_token_ms() const {
    return begun_ && from_.moves == 0 ? std::optional(first_ms_) : std::nullopt;
  }
  double token_ms() const { return each(&Mark::ms); }  // the mean, as below
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

// An ended text, for the reason of its last place.
struct EndedInput {
  std::optional<Why> moved = {};  // the last move's; none: no move
  bool chosen = false;            // the place was chosen; else named
  Cut cut = {};
  std::optional<double> token_ms = {};  // the last tokens' mean; none: too few
  // The cut from which on the weights are here, if texts may choose among landed cuts, and the cut
  // that the next one would choose, if it has a choice.
  std::optional<int> lowest = {};
  std::optional<Cut> begins = {};
};
Why why_there(const EndedInput& text, PlanInput input, Goal goal, double pace);

// Compares the forecast with an answer that ran at `cut`.
Forecast forecast_of(const PlanInput& input, Cut cut, const AnswerWatch& watch);
// Moves the facts' corrections towards the outcome. Ignores texts of few tokens.
void learn(PlanFacts& facts, const PlanInput& input, Cut cut, const AnswerWatch& watch);

// Returns the cost of an answer with these counts, for which `weights` bytes were downloaded.
AnswerCost cost_of(const PlanInput& input, Cut cut, const SplitCounts& counts, uint64_t weights,
                   size_t prompt_tokens, size_t tokens);

}  // namespace split::edge
