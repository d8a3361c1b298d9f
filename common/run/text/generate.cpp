#include "run/text/generate.h"

namespace split {

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
                cat("[prompt] expected at most ", config.context, " tokens, got ", ids.size(),
                    ": --context bounds it"),
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
                                std::string_view text, bool special, MemoryShare* memory) {
  if (tokenizer == nullptr && !text.empty()) {
    throw Error(ErrorKind::kInput, "[prompt] the model has no tokenizer: expected token ids",
                "prompt");
  }
  // Refuses text that cannot fit before encoding it, which takes many times its size.
  if (text.size() > static_cast<size_t>(config.context) && !tokenizer->may_shorten()) {
    const size_t fewest = text.size() / tokenizer->longest();
    if (fewest > static_cast<size_t>(config.context)) {
      throw Error(ErrorKind::kInput,
                  cat("[prompt] expected at most ", config.context, " tokens, got a text of ",
                      text.size(), " bytes, which has at least ", fewest, ": --context bounds it"),
                  "prompt");
    }
  }
  std::vector<int32_t> ids;
  if (tokenizer != nullptr) {
    ids =
        tokenizer->encode(text, {.add_special = true, .parse_special = special, .memory = memory});
  }
  check_prompt(config, ids);
  return ids;
}

bool Generation::next(const OnText& on_text) {
  if (loop_.ended()) return false;
  do {  // a scored piece of a prompt gives no token yet
    if (!rows_.has(loop_)) rows_.give(forward_.run(rows_.step(loop_)));
    loop_.logits(rows_.take(loop_), on_text);
  } while (!loop_.ended() && loop_.wanted().phase == Phase::kPrompt);
  return !loop_.ended();
}

Generated generate(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
                   std::span<const int32_t> prompt, const GenerateOptions& options,
                   const OnText& on_text) {
  Generation text(forward, config, tokenizer, prompt, options);
  while (text.next(on_text)) continue;
  return text.take();
}

}  // namespace split
