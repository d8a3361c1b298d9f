// The grammar of an answer's form: its calls, with arguments by their tools' schemas, and its words
// if they have a schema. Knows no state (text_form.h).
#pragma once

#include <memory>
#include <optional>

#include "text/form/answer_form.h"
#include "text/form/tagged_scanner.h"
#include "text/grammar.h"

namespace split {

struct FormGrammar {
  std::shared_ptr<const TokenGrammar> tokens;  // null: nothing is constrained
  // The starts of its texts: behind the prompt, behind a thought, and at a call in free words.
  std::optional<uint32_t> begin, behind, call;
  std::vector<JsonArguments> json;    // each tool's JSON arguments, if arguments are tagged
  std::vector<std::string> loosened;  // "tool.keyword", or "keyword" for the words' schema
};

// White space of the form's own texts may be missing, or one other. `memory` pays for the grammar.
// Throws Error(kInput) if the words' schema is not a schema, Error(kBusy).
FormGrammar form_grammar(const AnswerForm& form, const Tokenizer& tokenizer, MemoryShare* memory);
// The special tokens in the format's own texts: an answer may have them as text.
std::vector<int32_t> special_tokens(const AnswerFormat& format, const Tokenizer& tokenizer);

}  // namespace split
