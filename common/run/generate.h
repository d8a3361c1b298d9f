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
#include "text/tokenizer.h"

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

// `tokenizer` may be null: then there is no text, and stop strings are refused. Prompt and
// generated tokens together fill the context at most.
Generated generate(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
                   std::span<const int32_t> prompt, const GenerateOptions& options,
                   const OnText& on_text);

}  // namespace split
