// How quick the tokens of a text are where it is now. Knows no clock: it is told the time.
#pragma once

#include <optional>

#include "edge_client/split/flow.h"

namespace split::edge {

class TokenPace {
 public:
  // Tokens from which on a pace is known.
  static constexpr uint32_t kFewTokens = 8;
  // A run of tokens that was timed.
  struct Run {
    double token_ms = 0;
    bool slow = false;  // by a tenth or more, against what it was held to
  };

  // The text has so many tokens out: more than before, unless a step was in vain. Returns the run
  // that ends here, if one does: after kFewTokens, or as soon as its time is too long for as many,
  // where it is held to `ms` a token.
  std::optional<Run> token(uint32_t out, Moment now, std::optional<double> ms);
  // How long a token takes, where that is known.
  std::optional<double> token_ms() const {
    return tokens_ < kFewTokens ? std::nullopt : std::optional(token_ms_);
  }
  // The text has moved.
  void restart();

 private:
  std::optional<Moment> last_;
  uint32_t last_out_ = 0;  // tokens out then
  double token_ms_ = 0;    // about, of
  uint32_t tokens_ = 0;    // as many
  double run_ms_ = 0;      // of the run that is being timed,
  uint32_t run_tokens_ = 0;
};

}  // namespace split::edge
