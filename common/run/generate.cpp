#include "run/generate.h"

#include <algorithm>

#include "text/stop.h"
#include "text/utf8.h"

namespace split {
namespace {

ScoredToken scored(std::span<const float> logits, int32_t id, int top) {
  return {id, logprob_of(logits, id),
          top > 0 ? top_logprobs(logits, top) : std::vector<TokenLogprob>()};
}

}  // namespace

void check_prompt(const ModelConfig& config, std::vector<int32_t>& ids) {
  if (ids.empty()) {
    if (config.end_of_text < 0 || config.end_of_text >= config.vocab) {
      throw Error(ErrorKind::kInput,
                  "[prompt] expected at least one token: the model has no <|endoftext|>", "prompt");
    }
    ids.push_back(config.end_of_text);
  }
  if (ids.size() > static_cast<size_t>(config.context)) {
    throw Error(ErrorKind::kInput,
                cat("[prompt] expected at most ", config.context, " tokens, got ", ids.size()),
                "prompt");
  }
  for (const int32_t id : ids) {
    if (id < 0 || id >= config.vocab) {
      throw Error(ErrorKind::kInput,
                  cat("[prompt] token id: expected 0..", config.vocab - 1, ", got ", id), "prompt");
    }
  }
}

std::vector<int32_t> prompt_ids(const ModelConfig& config, const Tokenizer* tokenizer,
                                std::string_view text, bool special) {
  if (tokenizer == nullptr && !text.empty()) {
    throw Error(ErrorKind::kInput, "[prompt] the model has no tokenizer: expected token ids",
                "prompt");
  }
  // What cannot fit is not encoded: that takes many times its size.
  if (text.size() > static_cast<size_t>(config.context)) {
    const size_t fewest = text.size() / tokenizer->longest();
    if (fewest > static_cast<size_t>(config.context)) {
      throw Error(ErrorKind::kInput,
                  cat("[prompt] expected at most ", config.context, " tokens, got a text of ",
                      text.size(), " bytes, which has at least ", fewest),
                  "prompt");
    }
  }
  std::vector<int32_t> ids;
  if (!text.empty()) ids = tokenizer->encode(text, special);
  check_prompt(config, ids);
  return ids;
}

Generated generate(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
                   std::span<const int32_t> prompt, const GenerateOptions& options,
                   const OnText& on_text) {
  options.sampling.validate();
  if (tokenizer == nullptr && !options.stop.empty()) {
    throw Error(ErrorKind::kInput,
                "[generate] stop strings need a tokenizer, and the model has none", "stop");
  }
  CHECK(!prompt.empty() && prompt.size() <= static_cast<size_t>(config.context));
  const bool score = options.logprobs >= 0;
  const auto vocab = static_cast<size_t>(config.vocab);
  Generated result;
  result.finish_reason = "length";
  StopStrings stops(options.stop);
  Utf8Stream utf8;
  const auto emit = [&](std::string text, const ScoredToken* token) {
    result.text += text;
    if (!on_text || on_text(text, token)) return true;
    result.finish_reason = "cancelled";
    return false;
  };

  const size_t room = static_cast<size_t>(config.context) - prompt.size();
  const size_t limit = std::min(room, static_cast<size_t>(std::max(0, options.max_tokens)));
  // All logits cross no bus where few do.
  const bool top = !score && forward.gives_top() &&
                   top_suffices(options.sampling, std::min<size_t>(kTopLogits, vocab));
  const auto step = [&](uint32_t past, std::span<const int32_t> tokens, Phase phase) {
    return top ? forward.top(past, tokens, phase) : forward.run(past, tokens, phase, false);
  };
  std::span<const float> logits;  // or [2, K] with `top`; of the last step, until the next
  if (score && options.score_prompt) {
    for (size_t at = 0; at < prompt.size(); at += kScoreRows) {
      const auto slice = prompt.subspan(at, std::min(kScoreRows, prompt.size() - at));
      const auto rows = forward.run(static_cast<uint32_t>(at), slice, Phase::kPrompt, true);
      for (size_t i = 0; i < slice.size() && at + i + 1 < prompt.size(); ++i) {
        result.scored_prompt.push_back(
            scored(rows.subspan(i * vocab, vocab), prompt[at + i + 1], options.logprobs));
      }
      logits = rows.last(vocab);
    }
  } else if (limit > 0) {
    logits = step(0, prompt, Phase::kPrompt);
  }

  std::vector<int32_t> history(prompt.begin(), prompt.end());
  for (size_t n = 0; n < limit; ++n) {
    const int32_t id = top ? sample_top(logits, options.sampling, history.size())
                           : sample(logits, history, options.sampling, history.size());
    if (id == config.end_of_text && !options.ignore_end) {
      result.finish_reason = "stop";
      break;
    }
    ScoredToken token{id, 0, {}};
    if (score) {
      token = scored(logits, id, options.logprobs);
      result.scored.push_back(token);
    }
    result.tokens.push_back(id);
    history.push_back(id);
    std::string text;
    if (tokenizer != nullptr && id < tokenizer->size()) {
      text = stops.push(utf8.push(tokenizer->token_bytes(id)));
    }
    if (!emit(std::move(text), &token)) return result;
    if (stops.stopped()) {
      result.finish_reason = "stop";
      return result;
    }
    if (n + 1 < limit) {
      logits = step(static_cast<uint32_t>(history.size()) - 1, std::span(&id, 1), Phase::kGenerate);
    }
  }
  std::string rest = stops.push(utf8.flush());
  rest += stops.flush();
  if (stops.stopped()) result.finish_reason = "stop";
  if (!rest.empty()) emit(std::move(rest), nullptr);
  return result;
}

}  // namespace split
