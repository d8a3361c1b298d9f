// From a prompt to a text, over a Forward: equal prompts, options and seeds give equal texts
// wherever and however often the passes run (with one kind of device and profile).
#pragma once

#include "run/forward.h"
#include "run/text/drafted_rows.h"
#include "run/text/text.h"

namespace split {

// The prompt's ids: its text encoded with the tokenizer's added tokens, and one <|endoftext|> for
// no tokens at all. Throws Error(kInput) for more than the model's context, for an id outside the
// vocabulary, for text without a tokenizer, or for an empty prompt without such a token;
// Error(kBusy) if `memory` has too little for them.
std::vector<int32_t> prompt_ids(const ModelConfig& config, const Tokenizer* tokenizer,
                                std::string_view text, bool special = true,
                                MemoryShare* memory = nullptr);
void check_prompt(const ModelConfig& config, std::vector<int32_t>& ids);

// A text whose rows a Forward computes; it can wait between two tokens without a thread. Forward,
// config and tokenizer outlive it.
class Generation : public Text {
 public:
  // Throws the errors of TextLoop.
  Generation(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
             std::span<const int32_t> prompt, const GenerateOptions& options)
      : forward_(forward),
        loop_(config, tokenizer, prompt, options, options.drafts.most == 0 && forward.gives_top()),
        rows_(forward, config, prompt, options.drafts) {}

  // Throws the errors of Forward.
  bool next(const OnText& on_text) override;
  Generated take() override { return loop_.take(); }
  size_t cached() const override { return forward_.cached(); }
  const DraftedRows& rows() const { return rows_; }

 private:
  Forward& forward_;
  TextLoop loop_;
  DraftedRows rows_;
};

// Generates a text to its end.
Generated generate(Forward& forward, const ModelConfig& config, const Tokenizer* tokenizer,
                   std::span<const int32_t> prompt, const GenerateOptions& options,
                   const OnText& on_text);

}  // namespace split
