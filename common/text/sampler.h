// From logits to the next token. The same logits, history, options and position give the same
// token, today or in a replay, on any machine: the one random number of a position is a hash of
// (seed, position), weights are floats to 1e-7 whose sums run in a fixed order in double, and equal
// values are ordered by id. This file knows no model and no tokenizer: ids are rows of `logits`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace split {

struct SamplingOptions {
  float temperature = 0.8f;      // 0: greedy
  int top_k = 0;                 // 0: no limit
  float top_p = 0.95f;           // in [0, 1]; 1: no limit, 0: the best token only
  float repetition_penalty = 1;  // above 0; 1: none
  uint64_t seed = 0;

  // Throws Error(kInput) that names the first option out of its range.
  void validate() const;
};

// Draws the token at `position` of a sequence. As in transformers: the logits of ids in `history`
// are divided by the penalty if positive and multiplied by it otherwise (once, however often the id
// occurs); then top-k, temperature, top-p (the fewest largest whose probability reaches top_p),
// softmax. Exactly k tokens survive top-k: of equal ones those with the smaller ids. Greedy takes
// the smallest id of the largest logits. Throws Error(kInput) for options out of range, no logits,
// an id outside [0, V); Error(kIntegrity) for a logit that is NaN or infinite.
int32_t sample(std::span<const float> logits, std::span<const int32_t> history,
               const SamplingOptions& options, uint64_t position);

// Whether sample() needs no more of the logits than the `count` largest.
bool top_suffices(const SamplingOptions& options, size_t count);
// sample() from these, for which they suffice. top [2, count]: the largest logits, larger ones
// first and equal ones by id, then their ids; what is not finite would come first.
int32_t sample_top(std::span<const float> top, const SamplingOptions& options, uint64_t position);

struct TokenLogprob {
  int32_t id;
  float logprob;
};

// The n most likely tokens (all, if there are fewer), best first, equal ones by id, with their
// natural logarithms of probability. Throws as sample() does, and Error(kInput) for n below 0.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, int n);

// The log-softmax of `logits` at `id`. Throws as sample() does.
float logprob_of(std::span<const float> logits, int32_t id);

// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): a
// bijection of the counter for each key.
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

// The draw of a position, in [0, 1) with 53 bits: philox4x32 with the seed as key and the position
// as counter, low words first; its first word is the high half, its second the low half of 64 bits
// whose 53 highest are used.
double uniform_at(uint64_t seed, uint64_t position);

}  // namespace split
