// One sequence of a model that runs in two places: the first `cut` blocks in a session of the
// cloud, the others here. The edge keeps every token with its phase, so that a lost session,
// connection or server is answered by opening the session again and sending what it had; with equal
// phases the bits repeat, and the text is as if nothing had happened. A cut of 0 never talks to the
// server; in one behind the last block the cloud has the head too, chooses the tokens and streams
// them. A flow (flow.h): whoever drives it asks the cloud, runs the jobs and waits.
#pragma once

#include <string>
#include <vector>

#include "edge_client/split/cloud_rows.h"
#include "edge_client/split/cut_mover.h"
#include "edge_client/split/kept_turns.h"
#include "edge_client/split/shared_rows.h"

namespace split::edge {

// One thread at a time.
class TextSession {
 public:
  // `cut` may be Move::kCloud. `tail` has the stages from it on, with the head, or without it
  // (perhaps with the norm), and then the head is asked of the cloud; null when there are no stages
  // for this machine. What it costs is added to `counts` as it comes. With `moves` the cut may
  // move: then the head is here.
  TextSession(const Model& model, int cut, Batcher* tail, const RetryOptions& retry,
              SplitCounts& counts, Requester requester = {}, const MoveOptions* moves = nullptr);
  TextSession(const TextSession&) = delete;
  TextSession& operator=(const TextSession&) = delete;

  // Begins to meet the lane, behind so many rows, one token before the next: the cut moves where
  // that is ready. Asked before each step that brings a generated token.
  Flow& meet(uint32_t past);
  // The text has ended with so many rows: those behind them came from guesses.
  void end(uint32_t rows);
  // Begins what Forward::run is asked for. The rows stay as they are until the flow is done; then
  // the results are there, until the next begin. The flow throws as Forward does.
  Flow& run(const SequenceRows& rows);
  // Goes on with a session on which the cloud streamed these ids, the first `prompt` of which were
  // given: it has the rows of all but the last. Before anything else.
  // `lost`: the cloud was, meanwhile.
  void adopt(const std::string& session, std::span<const int32_t> ids, size_t prompt, bool lost);
  // Takes the rows of prompts that texts of this root left on this machine. Before anything else;
  // not for a prompt that is scored.
  void share(PrefixRoot root) { shared_.root = std::move(root); }
  // Leading rows of an earlier text that this one can go on from: those that both sides have where
  // they are needed, of the same tokens, in the same phase unless the phases are alike on the cloud
  // and here; so a text's bits do not depend on what was kept. The prompt's last row is always new.
  // None where no more are there than others share.
  uint32_t rows_of(const KeptTurn& turn, std::span<const int32_t> prompt, bool phases_alike) const;
  // Goes on from so many, of a prompt of which only the last row's result will be wanted. Before
  // anything else.
  void go_on_from(KeptTurn turn, uint32_t rows);
  // The text will have so many tokens at most.
  void expect(uint32_t most) {
    if (mover_) mover_->expect(most, answer_before_);
  }
  // Leaves the rows of a prompt on this machine to texts of its root. Once its text has ended.
  void leave_rows() { shared_.put(); }
  // Does that, and gives away the rows of a text that has ended: leave() does not end their
  // session. After that nothing more is asked of it.
  KeptTurn keep();
  // Whether the cloud chooses the tokens: then a text goes on by stream(), else by run().
  bool on_cloud() const { return sides_.on_cloud(); }
  // Begins to have the cloud go on behind these ids, whose first `prompt` were given, for at most
  // options.max_tokens. Ends with the stream, or where the text is to go on otherwise: then there
  // is no finish_reason(). Whoever drives it sees the tokens; it is given up where the text ends.
  Flow& stream(std::span<const int32_t> ids, size_t prompt, const GenerateOptions& options);
  const std::string& finish_reason() const { return finish_reason_; }
  int32_t end_of_text() const { return sides_.model.config().end_of_text; }
  std::span<const float> results() const { return results_; }

  // Whether this machine takes the logits of rows that run here.
  bool head_here() const {
    return sides_.tail != nullptr && sides_.tail->shard().options().range.to == Point::head();
  }
  bool gives_top() const { return head_here() && sides_.tail->shard().host_copy_is_slow(); }
  // It waits for nothing any more: what fails from now on has failed.
  void interrupt() { sides_.interrupted = true; }
  // The sessions that are to be ended on the server, as far as they can be told; once.
  std::vector<std::string> leave();

  // The lane, whose flow is driven beside this one; null where the cut stays.
  CutMover* mover() { return mover_ ? &*mover_ : nullptr; }
  const CutMover* mover() const { return mover_ ? &*mover_ : nullptr; }
  int cut() const { return sides_.name(); }
  // The tail that there is, if there is one.
  TailSide* tail() { return sides_.tail.get(); }
  // How many rows a generated step behind so many may have, so that the cut moves where it is due.
  uint32_t most_rows(uint32_t past) const {
    const uint32_t out = past + 1 - std::min(past, sides_.prompt_rows);
    const uint32_t due = mover_ ? std::max(1u, mover_->tokens_until_due(out)) : UINT32_MAX;
    return sides_.cut == 0 ? due : std::min(due, cloud_.most_rows());
  }
  // Tokens out at the last step.
  uint32_t tokens_out() const { return out_; }
  // Another one where a flow that waits for others should look again.
  uint64_t version() const { return sides_.version; }

 private:
  void lead(std::span<const int32_t> tokens, Phase phase, int cloud_layers);
  void forget_rows(uint32_t past);
  Task<void> run_rows(SequenceRows rows);
  Task<void> run_head();
  Task<void> meet_lane();
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
  void count_cached(uint32_t here, int cut);

  const RetryOptions retry_;
  SplitCounts& counts_;

  SplitState sides_;
  CloudRows cloud_;
  SharedRows shared_;
  Flow flow_;                      // ends before the sides do,
  std::optional<CutMover> mover_;  // and so does the lane
  uint32_t out_ = 0;
  uint32_t kept_rows_ = 0;                 // of the prompt, that are there
  std::optional<uint32_t> answer_before_;  // tokens of the chat's last answer
  uint64_t led_layers_ = 0;                // of the cloud, of the last rows that it has
  std::vector<Move> moves_;                // behind which no token is yet
  Moment moved_{};                         // the first of these
  uint64_t bytes_before_ = 0;
  std::vector<int32_t> ids_;  // of a text that is streamed
  std::string finish_reason_;
  std::vector<int32_t> with_lag_;  // tokens of a step that catches up
  std::vector<float> results_;
};

}  // namespace split::edge
