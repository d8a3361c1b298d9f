#include "edge_client/split/token_pace.h"

#include <algorithm>
#include <utility>

#include "edge_client/place/planner.h"

namespace split::edge {

std::optional<TokenPace::Run> TokenPace::token(uint32_t out, Moment now, std::optional<double> ms) {
  const std::optional<Moment> last = std::exchange(last_, now);
  const uint32_t last_out = std::exchange(last_out_, out);
  if (!last || out <= last_out) return std::nullopt;
  const double took = std::chrono::duration<double, std::milli>(now - *last).count();
  const uint32_t tokens = out - last_out;  // a step with guesses gives several
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

}  // namespace split::edge
