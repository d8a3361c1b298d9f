// Facts that decide the place of one running text, kept up to date: its tokens' times, the weights
// on this machine, the cloud's wishes, its moves so far. next_place() decides from them. Has no
// clock: callers pass the time.
#pragma once

#include <algorithm>

#include "edge_client/place/decision.h"

namespace split::edge {

// The speed of a text's tokens at its present place.
class TokenPace {
 public:
  // Tokens before the speed counts as known.
  static constexpr uint32_t kFewTokens = 8;
  // A run of timed tokens.
  struct Run {
    double token_ms = 0;
    bool slow = false;  // a tenth or more slower than the limit
  };

  // Notes so many tokens out: more than before, unless a step was in vain. Returns the run that
  // ends here, if any: after kFewTokens tokens, or as soon as it exceeds the limit of `ms` a token
  // for as many.
  std::optional<Run> token(uint32_t out, Moment now, std::optional<double> ms);
  // The time of a token; none: too few so far.
  std::optional<double> token_ms() const {
    return tokens_ < kFewTokens ? std::nullopt : std::optional(token_ms_);
  }
  // Forgets the times before a move.
  void restart();

 private:
  std::optional<Moment> last_;
  uint32_t last_out_ = 0;  // tokens out at that time
  double token_ms_ = 0;    // recent mean, over at most kFewTokens tokens
  uint32_t tokens_ = 0;    // timed tokens
  double run_ms_ = 0;      // the current run
  uint32_t run_tokens_ = 0;
};

class TextPlace {
 public:
  explicit TextPlace(const PlaceInput& known) : in(known) {}

  // The present facts. The owner updates its rows and what is prepared.
  PlaceInput in;

  // Sets the most tokens of the text, and about how many similar texts had (`alike`).
  void expect(uint32_t most, std::optional<uint32_t> alike) {
    expected_ = std::min(most, alike.value_or(most));
  }
  // Notes so many tokens out. Returns the time of a token if a run was found faster than
  // in.quicker.
  std::optional<double> token(uint32_t out, Moment now);
  uint32_t tokens_out() const { return out_; }
  void offer(const LocalWeights& offer);
  // The lowest cut to which the text may move, with weights down to this cut; none: it stays.
  std::optional<int> lowest(int weights) const;
  // Returns the move to prepare; none: the text stays.
  std::optional<Decision> next();
  // Whether this prepared move is made now. `at_its_token`: it has a token of its own.
  bool may_switch(const Decision& to, bool at_its_token, Moment now) const;
  // Notes a move.
  void moved(const Decision& to, Moment now);
  // Notes that the text left a lost cloud, and runs here alone.
  void fled();

 private:
  uint32_t out_ = 0, expected_ = UINT32_MAX;  // tokens
  Moment now_{};                              // time of the last token
  TokenPace pace_;                            // since the last move
  std::optional<int> offered_;                // lowest cut whose weights may be used
  std::optional<Moment> whole_at_, last_move_, last_wished_;
};

}  // namespace split::edge
