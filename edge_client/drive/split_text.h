// Generates from a split model, for one run of the program and for its server: a text, and the
// final states of one, each as its own session of the cloud. Knows neither where the words go nor
// what else runs.
#pragma once

#include <optional>
#include <vector>

#include "edge_client/drive/own_turns.h"
#include "edge_client/drive/split_forward.h"
#include "edge_client/split/placement.h"
#include "run/text/drafted_rows.h"
#include "run/text/generate.h"

namespace split::edge {

// A text that the cloud began on a session before anything of the model was known here.
struct EarlyText {
  std::string session;
  std::vector<int32_t> prompt;      // as the cloud reads it
  std::vector<ScoredToken> tokens;  // since then
  size_t text_bytes = 0;            // that the reader has
  std::string finish_reason;        // where it has ended
  bool lost = false;                // the cloud, before this machine knew of the model
  bool skips_spaces = false;        // those that it begins with
};

// The parts that it runs with; all of them outlive the call.
struct SplitContext {
  CloudLink& cloud;  // for this text alone
  const Placement& place;
  Batcher* tail;  // null when nothing runs here
  const Model& model;
  const Tokenizer* tokenizer;  // null: ids only
  const RetryOptions& retry;
  Waiter& waiter;
  Requester requester = {};
  const Moving* moving = nullptr;       // none: the cut stays
  const EarlyText* opened = nullptr;    // none: it begins here
  const TurnsOf* turns = nullptr;       // none: it begins anew, and nothing of it is kept
  std::optional<PrefixRoot> root = {};  // whose rows of prompts it shares; none: nobody's
};

// A text, begun; as Generation, counted. One that the cloud makes alone, and cannot leave it, comes
// in one go; one that can comes as the cloud streams it, until it goes on otherwise.
class SplitText {
 public:
  SplitText(const SplitContext& run, std::span<const int32_t> prompt,
            const GenerateOptions& options, SplitCounts& counts);
  // Throws as Generation::next does, and RemoteError.
  bool next(const OnText& on_text);
  Generated take();
  // Whether it has ended, or will, with its last token, and for no other reason.
  bool is_full() const { return loop_ ? loop_->left() == 0 : whole_.finish_reason == "length"; }
  // Keeps the rows of a text that has ended, for one that goes on from it. Once, and the last
  // thing.
  void keep();
  // None for one that the cloud makes alone. Any thread.
  SplitForward* forward() { return forward_ ? &*forward_ : nullptr; }

 private:
  void draw(std::span<const float> logits, const OnText& on_text);
  void take_up(const EarlyText& opened);
  size_t count_on_cloud(size_t tokens);

  const SplitContext run_;
  const std::vector<int32_t> prompt_;
  const GenerateOptions options_;
  SplitCounts& counts_;
  std::optional<SplitForward> forward_;  // none: the cloud's completions
  std::optional<TextLoop> loop_;
  std::optional<DraftedRows> rows_;  // of the loop, where it is fed with logits
  std::string late_;                 // text that the reader of an opened one lacks
  Generated whole_;
};

// As generate(), counted. Throws as it does, and RemoteError.
Generated generate_text(const SplitContext& run, std::span<const int32_t> prompt,
                        const GenerateOptions& options, const OnText& on_text, SplitCounts& counts);

// Returns the final norm's output for each token, [tokens, C].
std::vector<float> final_states(const SplitContext& run, std::span<const int32_t> tokens,
                                SplitCounts& counts);

}  // namespace split::edge
