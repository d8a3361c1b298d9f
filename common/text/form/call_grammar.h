// The grammar of an answer's form: its calls, whose arguments are of their tools' schemas, and its
// words where these have one. Knows no state (text_form.h).
#pragma once

#include <memory>
#include <optional>

#include "text/form/answer_form.h"
#include "text/form/tagged_scanner.h"
#include "text/grammar.h"

namespace split {

struct FormGrammar {
  std::shared_ptr<const TokenGrammar> tokens;  // null: the form holds nothing
  // Where texts of it begin: behind the prompt, behind a thought, and at a call in free words.
  std::optional<uint32_t> begin, behind, call;
  std::vector<JsonArguments> json;    // of each tool, where arguments are tagged
  std::vector<std::string> loosened;  // "tool.keyword", or "keyword" of the words' schema
};

// White space of the form's own texts may be missing, or be one other. `memory` pays for what is
// made. Throws Error(kInput) for a schema of the words that is none, Error(kBusy).
FormGrammar form_grammar(const AnswerForm& form, const Tokenizer& tokenizer, MemoryShare* memory);
// The special tokens of its own texts: these are text where they come.
std::vector<int32_t> special_tokens(const AnswerFormat& format, const Tokenizer& tokenizer);

}  // namespace split
