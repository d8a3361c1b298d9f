// From logits to the next token. Equal logits, history, options and position give an equal token,
// today or in a replay, on any machine: the one random number of a position is a hash of (seed,
// position), weights are floats to 1e-7 whose sums run in a fixed order in double, and equal values
// are ordered by id. Knows no model and no tokenizer: ids are rows of `logits`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/shared_list.h"

namespace split {

struct LogitBias {
  int32_t id;
  float bias;
};

struct SamplingOptions {
  float temperature = 0.8f;      // 0: greedy
  int top_k = 0;                 // 0: no limit
  float top_p = 0.95f;           // in [0, 1]; 1: no limit, 0: the best token only
  float repetition_penalty = 1;  // above 0; 1: none
  int repeat_last_n = -1;        // number of last ids; -1: all, 0: none
  uint64_t seed = 0;
  float min_p = 0;                        // in [0, 1]; 0: no limit
  float presence_penalty = 0;             // finite; 0: none
  float frequency_penalty = 0;            // finite; 0: none
  SharedList<LogitBias> logit_bias = {};  // each id once

  // Throws Error(kInput) that names the first option out of its range.
  void validate() const;
  // Whether logits change before they are drawn from.
  bool changes_logits() const;
};

// Draws the token at `position` of a sequence, whose last `generated` ids the model wrote.
// Following transformers, the logits of ids in `history`, or following llama.cpp in its last
// repeat_last_n ids, are divided by the repetition penalty if positive and multiplied by it
// otherwise (once, however often the id occurs). By OpenAI's documentation
// an id that was generated c > 0 times then loses presence_penalty + c * frequency_penalty,
// and the bias is added. Then come top-k, min-p, temperature and top-p (the fewest largest whose
// probability among those of top-k reaches top_p), and softmax. As in llama.cpp, min-p keeps what
// is at least min_p times as likely as the best, before temperature, and top-p knows nothing of it.
//   Exactly k tokens survive top-k: of equal ones those with the smaller ids. Greedy takes the
// smallest id of the largest logits. Where `allowed` has any, only ids whose byte is not 0 can
// come, and ids behind it cannot. Throws Error(kInput) for options out of range, no logits, an id
// outside [0, V), nothing allowed; Error(kIntegrity) for a logit that is NaN or infinite.
int32_t sample(std::span<const float> logits, std::span<const int32_t> history,
               const SamplingOptions& options, uint64_t position, size_t generated = 0,
               std::span<const uint8_t> allowed = {});

// Whether sample() needs no more of the logits than the `count` largest.
bool top_suffices(const SamplingOptions& options, size_t count);
// sample() from these, if they suffice. top [2, count]: the largest logits, larger ones first and
// equal ones by id, then their ids; values that are not finite come first.
int32_t sample_top(std::span<const float> top, const SamplingOptions& options, uint64_t position);

struct TokenLogprob {
  int32_t id;
  float logprob;
};

// The n most likely tokens (all, if there are fewer), best first, equal ones by id, with their
// natural logarithms of probability. Throws sample()'s errors, and Error(kInput) for n below 0.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n);

// The log-softmax of `logits` at `id`. Throws sample()'s errors.
float logprob_of(std::span<const float> logits, int32_t id);

// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): a
// bijection of the counter for each key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The draw of a position, in [0, 1) with 53 bits: philox4x32 with the seed as key and the position
// as counter, low words first; its first word is the high half, its second the low half of 64 bits
// whose 53 highest are used.
double uniform_at(uint64_t seed, uint64_t position);

}  // namespace split
