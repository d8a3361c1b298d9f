// One sequence of a model that runs in two places: the first `cut` blocks in a session of the
// cloud, the others here. The edge keeps every token with its phase, so that after the loss of a
// session, connection or server it opens the session again and sends what that had; with equal
// phases the bits repeat, and the text is as if nothing had happened. A cut of 0 needs no server;
// with the cut behind the last block the cloud has the head too, chooses the tokens and streams
// them. A flow (flow.h): its driver asks the cloud, runs the jobs and waits.
#pragma once

#include <string>
#include <vector>

#include "edge_client/split/cached_session.h"
#include "edge_client/split/cloud_rows.h"
#include "edge_client/split/cut_mover.h"
#include "edge_client/split/shared_rows.h"

namespace split::edge {

// One thread at a time.
class TextSession {
 public:
  // `tail` has the stages from the cut on, with the head, or without it
  // (perhaps with the norm), and then the cloud computes the head; null if this machine has no
  // stages. Costs are added to `counts` as they come. With `moves` the cut may move: then the head
  // is here.
  TextSession(const Model& model, Cut cut, Batcher* tail, const RetryOptions& retry,
              SplitCounts& counts, Requester requester = {}, const MoveOptions* moves = nullptr);
  TextSession(const TextSession&) = delete;
  TextSession& operator=(const TextSession&) = delete;

  // Begins to switch the cut if the mover is ready, behind `past` rows, one token before the next.
  // Called before each step that brings a generated token.
  Flow& meet(uint32_t past);
  // Ends the text after so many rows; those behind them came from wrong guesses.
  void end(uint32_t rows);
  // Begins the work of Forward::run. The rows must stay valid until the flow is done; then
  // results() are there, until the next begin. The flow throws as Forward does.
  Flow& run(const SequenceRows& rows);
  // Adopts a session on which the cloud streamed these ids, of which the first `prompt` were given:
  // it has the rows of all but the last. `lost`: the cloud was lost meanwhile. Call before anything
  // else.
  void adopt(const std::string& session, std::span<const int32_t> ids, size_t prompt, bool lost);
  // Uses prompt rows that texts of this root left on this machine. Call before anything else; not
  // for a prompt that is scored.
  void share(PrefixRoot root) { shared_.root = std::move(root); }
  // Leading rows of an earlier text that this one can go on from: on each side that needs them, of
  // the same tokens, in the same phase unless the phases are alike on the cloud and here; so a
  // text's bits do not depend on what was kept. The prompt's last row is always computed. Zero if
  // the prompt cache has as many rows.
  uint32_t rows_of(const CachedSession& turn, std::span<const int32_t> prompt,
                   bool phases_alike) const;
  // Goes on from so many rows, of a prompt of which only the last row's result is needed. Call
  // before anything else.
  void go_on_from(CachedSession turn, uint32_t rows);
  // Sets the most tokens that the text will have.
  void expect(uint32_t most) {
    if (mover_) mover_->expect(most, answer_before_);
  }
  // Caches the prompt's rows on this machine for texts of its root. Call after the text has ended.
  void leave_rows() { shared_.put(); }
  // Does that, and gives away the rows of a text that has ended: leave() will not end their
  // session. The last call.
  CachedSession keep();
  // Whether the cloud chooses the tokens, so that a text goes on by stream(), not by run().
  bool on_cloud() const { return sides_.cut.is_cloud(); }
  // Begins to have the cloud go on behind these ids, of which the first `prompt` were given, for at
  // most options.max_tokens. Ends with the stream, or without a finish_reason() if the text goes on
  // otherwise. The driver sees the tokens, and drops the flow when the text ends.
  Flow& stream(std::span<const int32_t> ids, size_t prompt, const GenerateOptions& options);
  FinishReason finish_reason() const { return streamed_.finish_reason; }
  int32_t end_of_text() const { return sides_.model.config().end_of_text; }
  std::span<const float> results() const { return results_; }

  // Whether this machine computes the logits of rows that run here.
  bool head_here() const {
    return sides_.tail != nullptr && sides_.tail->shard().options().range.to == Point::head();
  }
  bool gives_top() const { return head_here() && sides_.tail->shard().host_copy_is_slow(); }
  // Ends all waiting: errors from now on are final.
  void interrupt() { sides_.interrupted = true; }
  // Returns the sessions to end on the server, once.
  std::vector<std::string> leave();

  // The cut's mover, whose flow is driven beside this one; null if the cut stays.
  CutMover* mover() { return mover_ ? &*mover_ : nullptr; }
  const CutMover* mover() const { return mover_ ? &*mover_ : nullptr; }
  Cut cut() const { return sides_.cut; }
  // Null if there is no tail.
  TailSide* tail() { return sides_.tail.get(); }
  // Most rows of a generated step behind `past` rows, so that the cut moves when it is due.
  uint32_t most_rows(uint32_t past) const {
    const uint32_t out = past + 1 - std::min(past, sides_.prompt_rows);
    const uint32_t due = mover_ ? std::max(1u, mover_->tokens_until_due(out)) : UINT32_MAX;
    return sides_.cut == 0 ? due : std::min(due, cloud_.most_rows());
  }
  // Tokens out at the last step.
  uint32_t tokens_out() const { return out_; }
  // Changes when a flow that waits for others should look again.
  uint64_t version() const { return sides_.version; }

 private:
  void lead(std::span<const int32_t> tokens, Phase phase, int cloud_layers);
  void forget_rows(uint32_t past);
  Task<void> run_rows(SequenceRows rows);
  Task<void> run_head();
  Task<void> meet_mover();
  void forget_guesses(uint32_t past);
  uint32_t forget_tail(uint32_t past);
  void note(Move move);
  void leave_cloud(uint32_t rows);
  void settle_moves();
  void count_saved(uint32_t rows);
  Task<void> run_stream(size_t prompt, GenerateOptions options);
  Task<void> stream_tokens(size_t prompt, GenerateOptions options, Backoff& backoff);
  void streamed(const ScoredToken& token, size_t prompt);
  bool to_switch() const;
  uint32_t add_lag(SequenceRows& rows);
  Task<void> pass(SequenceRows rows);
  Task<void> run_here(SequenceRows rows, float* out, SequenceId sequence);
  void count_cached(uint32_t here, Cut cut);

  const RetryOptions retry_;
  SplitCounts& counts_;

  SplitState sides_;
  CloudRows cloud_;
  SharedRows shared_;
  Flow flow_;                      // destroyed before sides_
  std::optional<CutMover> mover_;  // destroyed before sides_ too
  uint32_t out_ = 0;
  uint32_t kept_rows_ = 0;                 // prompt rows taken from an earlier text
  std::optional<uint32_t> answer_before_;  // tokens of the chat's last answer
  uint64_t led_layers_ = 0;                // layers that ran on the cloud for its last rows
  struct {
    std::vector<Move> moves;
    Moment since{};  // time of the first
    uint64_t bytes_before = 0;
  } unsettled_;  // moves since the last token
  struct {
    std::vector<int32_t> ids;
    FinishReason finish_reason = FinishReason::kNone;
  } streamed_;
  std::vector<int32_t> with_lag_;  // tokens of a step that brings the lag, too
  std::vector<float> results_;
};

}  // namespace split::edge
