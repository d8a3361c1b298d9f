// From a prompt to a text: the loop of forward passes, sampling, stop strings and UTF-8. The same
// prompt, options and seed give the same text wherever and however often the passes run (with one
// kind of device and profile).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/model.h"
#include "run/forward.h"
#include "text/sampler.h"
#include "text/stop.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace split {

// Rows of logits held at once while a prompt is scored: 6 MB for 50,257 tokens.
inline constexpr size_t kScoreRows = 32;

struct GenerateOptions {
  int max_tokens = 64;
  SamplingOptions sampling;
  std::vector<std::string> stop;
  bool ignore_end = false;  // go on after <|endoftext|>
  int logprobs = -1;  // the most likely tokens to list at each position; -1: no log-probabilities
  bool score_prompt = false;  // log-probabilities of the prompt's tokens too, from the second on
};

// A token and how likely the model found it, before temperature, penalty and cuts.
struct ScoredToken {
  int32_t id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
};

struct Generated {
  std::vector<int32_t> tokens;
  std::string text;                 // valid UTF-8 is not promised: bytes as the tokens give them
  std::string finish_reason;        // "length", "stop", or "cancelled" when on_text said so
  std::vector<ScoredToken> scored;  // of `tokens`, when asked for
  std::vector<ScoredToken> scored_prompt;  // of prompt[1..], when asked for
};

// Called with text as it is certain, and the token that made it so (null for what was held back at
// the end). Returns false to stop.
using OnText = std::function<bool(std::string_view text, const ScoredToken* token)>;

// The prompt's ids: its text encoded, and one <|endoftext|> for no tokens at all. Throws
// Error(kInput) for more than the model's context, for an id outside the vocabulary, for text
// without a tokenizer, or for an empty prompt without such a token.
std::vector<int32_t> prompt_ids(const ModelConfig& config, const Tokenizer* tokenizer,
                                std::string_view text, bool special = true);
void check_prompt(const ModelConfig& config, std::vector<int32_t>& ids);

// A text while it is made, one token at a time, so that it can wait between two of them without a
// thread. One thread at a time. Forward, config and tokenizer outlive it.
class Generation {
 public:
  // `tokenizer` may be null: then there is no text, and stop strings are refused. Prompt and
  // generated tokens together fill the context at most.
  Generation(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
             std::span<const int32_t> prompt, const GenerateOptions& options);

  // Makes the next token, or ends the text. False once it has ended. Throws as Forward does: the
  // text then has to be begun again.
  bool next(const OnText& on_text);
  // The text so far; all of it once it has ended. Once.
  Generated take() { return std::move(result_); }

 private:
  std::span<const float> step(uint32_t past, std::span<const int32_t> tokens, Phase phase);
  std::span<const float> run_prompt();
  bool emit(std::string text, const ScoredToken* token, const OnText& on_text);
  bool finish(const OnText& on_text);

  Forward& forward_;
  const ModelConfig& config_;
  const Tokenizer* const tokenizer_;
  const GenerateOptions options_;
  const bool score_;
  const size_t limit_;  // tokens to make
  const bool top_;      // all logits cross no bus where few do
  StopStrings stops_;
  Utf8Stream utf8_;
  std::vector<int32_t> history_;
  bool begun_ = false, ended_ = false;
  Generated result_;
};

// The same to its end.
Generated generate(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
                   std::span<const int32_t> prompt, const GenerateOptions& options,
                   const OnText& on_text);

}  // namespace split
