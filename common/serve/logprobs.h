// Tokens and their log-probabilities in OpenAI's lists: for a completion four parallel lists, for a
// chat one list of objects.
#pragma once

#include "base/json.h"
#include "run/text/generate.h"

namespace split::serve {

class LogprobLists {
 public:
  enum class Kind { kCompletion, kChat };

  // `with_ids`: lists the most likely tokens by id as well ("top_token_ids", an extension), since
  // texts may coincide.
  LogprobLists(Kind kind, const Tokenizer* tokenizer, bool with_ids)
      : kind_(kind), tokenizer_(tokenizer), with_ids_(with_ids) {}

  void add(int32_t id, const ScoredToken* scored);
  bool empty() const { return tokens_.empty(); }
  // Returns the rows added since the last take().
  Json take();

 private:
  std::string bytes_of(int32_t id) const;
  std::string text_of(int32_t id) const;
  Json chat_token(int32_t id, float logprob) const;

  const Kind kind_;
  const Tokenizer* tokenizer_;
  const bool with_ids_;
  size_t offset_ = 0;
  Json tokens_ = Json::array(), logprobs_ = Json::array(), top_ = Json::array(),
       top_ids_ = Json::array(), offsets_ = Json::array();
};

// The mean of a text's tokens; a text without any comes last.
double mean_logprob(const Generated& text);

}  // namespace split::serve
