#include "edge_client/drive/hand_off.h"

#include <chrono>
#include <utility>

#include "edge_client/split/sides.h"

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

HandOff::HandOff(CloudLink& cloud, const Model& model, const Tokenizer* tokenizer,
                 std::span<const int32_t> prompt, const GenerateOptions& options,
                 const RetryOptions& retry, Waiter& waiter, SplitCounts& counts,
                 Requester requester, const Here& here)
    : cloud_(cloud),
      model_(model),
      options_(options),
      retry_(retry, waiter),
      counts_(counts),
      requester_(std::move(requester)),
      here_(here),
      prompt_(prompt.size()),
      ids_(prompt.begin(), prompt.end()),
      loop_(model.config(), tokenizer, prompt, options),
      session_(random_session_id()) {}

HandOff::~HandOff() {
  if (asked_ && !lost_) cloud_.close(session_);
}

bool HandOff::next(const OnText& on_text) {
  if (loop_.ended()) return false;
  if (local_ || arrived()) {
    compute(on_text);
  } else {
    stream(on_text);
  }
  return !loop_.ended();
}

// Begins to run here where that is possible by now: the rows that there are, but the last, are
// computed from their ids before the next token's.
bool HandOff::arrived() {
  Batcher* const batcher = here_();
  if (batcher == nullptr) return false;
  const uint32_t past = loop_.wanted().past;
  const auto rows = std::span(ids_).first(past);
  const size_t of_prompt = std::min<size_t>(past, prompt_);
  local_.emplace(*batcher, requester_);
  local_->remember(rows.first(of_prompt), Phase::kPrompt);
  local_->remember(rows.subspan(of_prompt), Phase::kGenerate);
  return true;
}

void HandOff::stream(const OnText& on_text) {
  const uint64_t layers = static_cast<uint64_t>(model_.config().layers);
  uint64_t due = loop_.wanted().count();  // rows that the next token costs the cloud
  const auto on_token = [&](const ScoredToken& token) {
    retry_.succeeded();
    lost_ = false;
    ++counts_.steps;
    counts_.cloud_layer_rows += layers * std::exchange(due, 1);
    ids_.push_back(token.id);
    loop_.token(token, on_text);
    return !loop_.ended() && here_() == nullptr;
  };
  asked_ = true;
  try {
    GenerateOptions rest = options_;
    rest.generated = ids_.size() - prompt_;
    rest.max_tokens = static_cast<int>(loop_.left());
    const std::string reason = cloud_.stream(session_, ids_, rest, on_token, counts_);
    if (loop_.ended() || reason.empty()) return;
    if (reason != "stop") throw RemoteError("[server] its text ended early", 200, "");
    loop_.token({model_.config().end_of_text, 0, {}}, on_text);
  } catch (const RemoteError& error) {
    lost_ = error.status == 0;
    if (error.transient() && here_() != nullptr) return;  // the text goes on here
    ++counts_.replays;
    retry_.failed(error);
  }
}

void HandOff::compute(const OnText& on_text) {
  const auto start = Clock::now();
  const SequenceRows rows = loop_.wanted();
  const std::span<const float> logits = local_->run(rows);
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  ++counts_.steps;
  counts_.edge_ms += ms;
  if (std::exchange(asked_, false)) {
    if (!lost_) cloud_.close(session_);
    counts_.moves.push_back({.at = static_cast<uint32_t>(ids_.size() - prompt_),
                             .from = Move::kCloud,
                             .to = 0,
                             .why = lost_ ? "cloud_lost" : "landed",
                             .rows = rows.past,
                             .bytes = 0,
                             .pause_ms = ms});
  }
  loop_.logits(logits, [&](std::string_view text, const ScoredToken* token) {
    if (token != nullptr) ids_.push_back(token->id);
    return !on_text || on_text(text, token);
  });
}

}  // namespace split::edge
