// From logits to a text: sampling, limits, stop strings and UTF-8, as a state machine. It says
// which rows it wants computed and is fed their logits, or the next token if another machine chose
// it; the machine that computes them may change at any token: draws depend on seed and position
// alone. Knows no thread, no device and nothing that waits.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "run/text/drafts.h"
#include "run/text/finish_reason.h"
#include "step/rows.h"
#include "text/form/text_form.h"
#include "text/sampler.h"
#include "text/stop.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace split {

// Rows of logits held at once while a prompt is scored: 6 MB for 50,257 tokens.
inline constexpr size_t kScoreRows = 32;

// Copies share its large parts.
struct GenerateOptions {
  int max_tokens = 64;
  int min_tokens = 0;  // nothing ends a text before these
  SamplingOptions sampling;
  StopTexts stop = {};
  bool ignore_end = false;                    // go on after end tokens, and show special tokens
  std::shared_ptr<const TextForm> form = {};  // the text's form; null: words
  size_t generated = 0;                       // the prompt's last tokens that the text continues
  int logprobs = -1;  // the most likely tokens to list at each position; -1: no log-probabilities
  bool score_prompt = false;    // log-probabilities of the prompt's tokens too, from the second on
  DraftOptions drafts = {};     // how rows are computed; texts do not depend on it
  bool cache_prompt = true;     // the prompt's rows may come from other texts' cache, and enter it
  std::string cache_salt = {};  // shared with texts of this salt alone
  bool seeded = false;          // the seed was asked for, not drawn

  // Whether the client may expect an equal text again.
  bool repeats() const { return seeded || sampling.temperature == 0; }
};

// A token and its log-probability, before temperature, penalty and cuts.
struct ScoredToken {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct Generated {
  std::vector<int32_t> tokens;
  std::string text;                      // its words, as the tokens' bytes: perhaps invalid UTF-8
  size_t thought_tokens = 0, calls = 0;  // parts of a form
  std::string stopped_by;                // the stop string that ended it
  FinishReason finish_reason = FinishReason::kNone;  // kCancelled when on_text said so
  std::vector<ScoredToken> scored;                   // for `tokens`, if asked for
  std::vector<ScoredToken> scored_prompt;            // for prompt[1..], if asked for
};

// Called with complete text, and the token that completed it: null for text held back to the end,
// and for a token's pieces behind its first one. Returns false to stop.
using OnText = std::function<bool(const TextPiece& piece, const ScoredToken* token)>;

// One thread at a time. Config and tokenizer outlive it.
class TextLoop {
 public:
  // `tokenizer` may be null: then there is no text, and stop strings are refused. Prompt and
  // generated tokens together fill the context at most. With `top`, the largest logits are asked
  // for if they suffice.
  TextLoop(const ModelConfig& config, const Tokenizer* tokenizer, std::span<const int32_t> prompt,
           const GenerateOptions& options, bool top = false);

  bool ended() const { return ended_; }
  size_t left() const { return limit_ - result_.tokens.size(); }  // tokens to make, at most
  std::span<const int32_t> ids() const { return history_; }       // the prompt's too
  // The rows whose logits are due, until it is fed: to the head, or to the top. Not to be called
  // once the text has ended.
  SequenceRows wanted() const;
  // Feeds these logits, [wanted rows, V], or [2, K] of the top: the next token, or the end.
  void logits(std::span<const float> logits, const OnText& on_text);
  // Feeds the next token, which another machine chose from these rows.
  void token(ScoredToken token, const OnText& on_text);
  // Ends it for this reason, unless it has ended.
  void end(FinishReason reason, const OnText& on_text);
  // The text so far; all of it once it has ended. Call once.
  Generated take() { return std::move(result_); }

 private:
  bool scores_prompt() const { return score_ && options_.score_prompt; }
  void score_rows(std::span<const float> logits);
  TextForm::Pieces pieces_of(int32_t id);
  void add(TextForm::Pieces& out, TextForm::Piece piece);
  bool masks() const;
  bool from_top() const { return top_ && !masks(); }
  bool stops_at(int32_t id) const;
  using Mask = std::shared_ptr<const std::vector<uint8_t>>;
  Mask allowed() const;
  bool emit(const TextForm::Pieces& pieces, const ScoredToken* token, const OnText& on_text);
  void finish(const OnText& on_text);

  const ModelConfig& config_;
  const GenerateOptions options_;
  const bool score_;
  const size_t prompt_;  // tokens of the prompt
  const size_t limit_;   // tokens to make
  const bool top_;       // few logits suffice: nothing is masked, and all are dear to copy
  StopStrings stops_;
  std::optional<TokenStream> stream_;  // leaves special tokens out
  Utf8Stream utf8_;
  std::vector<int32_t> history_;
  std::optional<TextForm::State> state_;      // set with a form
  TextPiece::Part part_ = TextPiece::kWords;  // part of utf8_
  size_t fed_ = 0;                            // rows of the history that were computed
  bool ended_ = false;
  Generated result_;
};

}  // namespace split
