// Facts on which the place of one running text depends, kept as they come: its tokens' times, the
// weights on this machine, the cloud's wishes, its moves so far. Where the text is to go on,
// next_place() says from them. Knows no clock: it is told the time.
#pragma once

#include <algorithm>

#include "edge_client/place/decision.h"

namespace split::edge {

// How quick the tokens of a text are where it is now.
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

class TextPlace {
 public:
  explicit TextPlace(const PlaceInput& known) : in(known) {}

  // Facts by now. Whoever moves the text keeps its rows and what is prepared.
  PlaceInput in;

  // The text will have so many tokens at most, and about as many as `alike` where texts like it had
  // that.
  void expect(uint32_t most, std::optional<uint32_t> alike) {
    expected_ = std::min(most, alike.value_or(most));
  }
  // The text has so many tokens out. Returns how long one takes, where they are found to be quicker
  // than in.quicker's.
  std::optional<double> token(uint32_t out, Moment now);
  uint32_t tokens_out() const { return out_; }
  void offer(const LocalWeights& offer);
  // The lowest cut from which the text could go on, with weights down to this cut; none: it goes on
  // only where it is.
  std::optional<int> lowest(int weights) const;
  // Returns the move that is to be prepared; none: the text stays.
  std::optional<Decision> next();
  // Whether this move, which is prepared, is made now; at a token that somebody named.
  bool may_switch(const Decision& to, bool at_its_token, Moment now) const;
  // The text moves there.
  void moved(const Decision& to, Moment now);
  // It leaves a cloud that is lost, and is all here.
  void fled();

 private:
  uint32_t out_ = 0, expected_ = UINT32_MAX;  // tokens
  Moment now_{};                              // of the last token
  TokenPace pace_;                            // since the last move
  std::optional<int> offered_;                // cut below which no weights are used
  std::optional<Moment> whole_at_, last_move_, last_wished_;
};

}  // namespace split::edge
