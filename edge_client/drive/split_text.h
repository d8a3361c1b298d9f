// Generates from a split model, for one run of the program and for its server: a text, or its final
// states, each with a session of its own on the cloud. Knows neither where the words go nor what
// else runs.
#pragma once

#include <optional>
#include <vector>

#include "edge_client/drive/session_cache.h"
#include "edge_client/drive/split_forward.h"
#include "edge_client/split/placement.h"
#include "run/text/drafted_rows.h"
#include "run/text/text.h"

namespace split::edge {

// A text that the cloud began on a session before anything of the model was known here.
struct EarlyText {
  std::string session;
  std::vector<int32_t> prompt;      // as the cloud tokenised it
  std::vector<ScoredToken> tokens;  // streamed since then
  size_t text_bytes = 0;            // bytes of text that the reader has
  FinishReason finish_reason = FinishReason::kNone;
  bool lost = false;  // the cloud was lost before the model was known here
};

// Follows a text, on the thread that makes it.
class TextObserver {
 public:
  virtual ~TextObserver() = default;
  virtual void token() = 0;           // another one is out
  virtual bool stops() const = 0;     // the text is to end
  virtual void ended(bool full) = 0;  // full: with its last token, for no other reason
};

// The parts that a text runs with; all outlive it.
struct SplitContext {
  CloudLink& cloud;  // used by this text alone
  const Placement& place;
  Batcher* tail;  // null: nothing runs here
  const Model& model;
  const Tokenizer* tokenizer;  // null: ids only
  const RetryOptions& retry;
  Waiter& waiter;
  Requester requester = {};
  const Moving* moving = nullptr;          // null: the cut stays
  const EarlyText* opened = nullptr;       // null: the text begins here
  const SessionCacheUse* turns = nullptr;  // null: begins anew, and keeps nothing
  std::optional<PrefixRoot> root = {};     // scope of the prompt cache; nullopt: not shared
  TextObserver* observer = nullptr;
  std::shared_ptr<void> keeps = {};  // owner of all these; null: the caller
};

// A text at its cut, with costs. One that the cloud generates alone for good comes in one piece;
// one that can leave the cloud comes as it is streamed.
class SplitText : public Text {
 public:
  SplitText(const SplitContext& run, std::span<const int32_t> prompt,
            const GenerateOptions& options, SplitCounts& counts);
  // Throws as Generation::next does, and RemoteError.
  bool next(const OnText& on_text) override;
  Generated take() override { return loop_ ? loop_->take() : std::move(whole_); }
  std::span<const int32_t> prompt() const override { return prompt_; }
  size_t cached() const override { return counts_.cached_rows; }
  // Keeps the rows of an ended text for one that goes on from it. The last call, once.
  void keep();
  // Null for a text that the cloud generates alone. Any thread.
  SplitForward* forward() { return forward_ ? &*forward_ : nullptr; }

 private:
  void draw(std::span<const float> logits, const OnText& on_text);
  void take_up(const EarlyText& opened);
  size_t count_on_cloud(size_t tokens);
  bool ended() const;

  const SplitContext run_;
  const std::vector<int32_t> prompt_;
  const GenerateOptions options_;
  SplitCounts& counts_;
  std::optional<SplitForward> forward_;  // nullopt: the cloud's completions
  std::optional<TextLoop> loop_;
  std::optional<DraftedRows> rows_;  // rows of the loop, if it gets logits
  std::string early_;                // text of an EarlyText, until it is given
  Generated whole_;
};

// Returns the final norm's output for each token, [tokens, C].
std::vector<float> final_states(const SplitContext& run, std::span<const int32_t> tokens,
                                SplitCounts& counts);

}  // namespace split::edge
