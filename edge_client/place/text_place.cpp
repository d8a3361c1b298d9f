#include "edge_client/place/text_place.h"

#include <algorithm>
#include <utility>

#include "edge_client/place/planner.h"

namespace split::edge {

std::optional<TokenPace::Run> TokenPace::token(uint32_t out, Moment now, std::optional<double> ms) {
  const std::optional<Moment> last = std::exchange(last_, now);
  const uint32_t last_out = std::exchange(last_out_, out);
  if (!last || out <= last_out) return std::nullopt;
  const double took = std::chrono::duration<double, std::milli>(now - *last).count();
  const uint32_t tokens = out - last_out;  // a step with guesses yields several
  tokens_ += tokens;
  const double part = std::min(1.0, static_cast<double>(tokens) / std::min(tokens_, kFewTokens));
  token_ms_ += (took / tokens - token_ms_) * part;

  run_ms_ += took;
  run_tokens_ += tokens;
  const bool slow = ms && is_better(*ms, run_ms_ / std::max(run_tokens_, kFewTokens));
  if (!slow && run_tokens_ < kFewTokens) return std::nullopt;
  return Run{std::exchange(run_ms_, 0) / std::exchange(run_tokens_, 0), slow};
}

void TokenPace::restart() {
  last_.reset();
  tokens_ = run_tokens_ = 0;
  run_ms_ = 0;
}

std::optional<double> TextPlace::token(uint32_t out, Moment now) {
  out_ = out;
  now_ = now;
  const bool leaves = in.quicker && in.quicker->cut < in.cut;
  const auto run =
      pace_.token(out, now, leaves ? std::optional(in.quicker->token_ms) : std::nullopt);
  if (!run || !leaves) return std::nullopt;
  in.slow_runs = run->slow ? in.slow_runs + 1 : 0;
  return run->slow ? std::nullopt : std::optional(run->token_ms);
}

void TextPlace::offer(const LocalWeights& offer) {
  in.offloads = offer.offloads;
  in.quicker = offer.quicker;
  offered_ = offer.lowest;
  whole_at_ = offer.whole_at;
  in.slow_runs = 0;  // counted anew against this offer
}

std::optional<int> TextPlace::lowest(int weights) const {
  if (in.named) return std::nullopt;
  return std::max({in.lowest_quick, weights, offered_.value_or(0)});
}

std::optional<Decision> TextPlace::next() {
  in.tokens_left = std::max(expected_, out_ + 1) - out_;
  in.token_ms = pace_.token_ms();
  in.whole_ms.reset();
  if (whole_at_ && *whole_at_ > now_) in.whole_ms = ms_between(now_, *whole_at_);
  const std::optional<Decision> next = next_place(in);
  if (std::exchange(in.cloud_is_back, false) && in.token_ms && !in.going) in.fled_from.reset();
  if (!next || next == in.going) return next;
  if (next->why == Why::kAskedByCloud) in.before_wish = in.before_wish.value_or(in.cut);
  if (next->why == Why::kGoal) {
    in.lowest_quick = in.cut.blocks(in.layers) + 1;
    in.came_from.reset();
  }
  return next;
}

bool TextPlace::may_switch(const Decision& to, bool at_its_token, Moment now) const {
  const auto since = [&](const std::optional<Moment>& then) {
    return then ? std::optional(ms_between(*then, now)) : std::nullopt;
  };
  PlaceInput known = in;
  known.going = to;
  known.at_its_token = at_its_token;
  known.token_ms = pace_.token_ms();
  known.since_move_ms = since(last_move_);
  known.since_wish_ms = since(last_wished_);
  return edge::may_switch(known);
}

void TextPlace::moved(const Decision& to, Moment now) {
  const bool wished = to.why == Why::kAskedByCloud;
  const bool tried = wished ? to.cut < in.cut : to.why == Why::kLanded;
  in.came_from = tried && to.cut != 0 ? std::optional(in.cut) : std::nullopt;
  if (!wished || to.cut == in.before_wish) in.before_wish.reset();
  in.fled_from.reset();
  in.slow_runs = 0;
  pace_.restart();
  last_move_ = now;
  if (wished) last_wished_ = now;
  in.cut = to.cut;
}

void TextPlace::fled() {
  in.fled_from = std::exchange(in.cut, 0);
  in.fled_token_ms = pace_.token_ms();
  pace_.restart();
}

}  // namespace split::edge
