#include "serve/logprobs.h"

#include <limits>

#include "text/utf8.h"
#include "wire/protocol.h"

namespace split::serve {

std::string LogprobLists::bytes_of(int32_t id) const {
  if (tokenizer_ == nullptr || id >= tokenizer_->size()) return cat("<", id, ">");
  return std::string(tokenizer_->token_bytes(id));
}

std::string LogprobLists::text_of(int32_t id) const { return to_valid_utf8(bytes_of(id)); }

Json LogprobLists::chat_token(int32_t id, float logprob) const {
  Json bytes = Json::array();
  for (const char c : bytes_of(id)) bytes.push_back(static_cast<uint8_t>(c));
  return {
      {"token", text_of(id)}, {"logprob", wire::json_number(logprob)}, {"bytes", std::move(bytes)}};
}

void LogprobLists::add(int32_t id, const ScoredToken* scored) {
  if (kind_ == Kind::kChat) {
    CHECK(scored != nullptr);
    Json token = chat_token(id, scored->logprob);
    Json& top = token["top_logprobs"] = Json::array();
    for (const TokenLogprob& one : scored->top) top.push_back(chat_token(one.id, one.logprob));
    tokens_.push_back(std::move(token));
    return;
  }
  std::string text = text_of(id);
  offsets_.push_back(offset_);
  offset_ += text.size();
  tokens_.push_back(std::move(text));
  logprobs_.push_back(scored == nullptr ? Json() : Json(wire::json_number(scored->logprob)));
  Json top, ids = Json::array();
  if (scored != nullptr) {
    top = Json::object();
    for (const TokenLogprob& one : scored->top) {
      const double logprob = wire::json_number(one.logprob);
      top[text_of(one.id)] = logprob;
      ids.push_back(Json::array({one.id, logprob}));
    }
  }
  top_.push_back(std::move(top));
  top_ids_.push_back(std::move(ids));
}

Json LogprobLists::take() {
  Json out;
  if (kind_ == Kind::kChat) {
    out["content"] = std::move(tokens_);
    out["refusal"] = nullptr;
  } else {
    out["tokens"] = std::move(tokens_);
    out["token_logprobs"] = std::move(logprobs_);
    out["top_logprobs"] = std::move(top_);
    out["text_offset"] = std::move(offsets_);
    if (with_ids_) out["top_token_ids"] = std::move(top_ids_);
  }
  tokens_ = logprobs_ = top_ = top_ids_ = offsets_ = Json::array();
  return out;
}

double mean_logprob(const Generated& text) {
  if (text.scored.empty()) return -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (const ScoredToken& token : text.scored) sum += double{token.logprob};
  return sum / static_cast<double>(text.scored.size());
}

}  // namespace split::serve
