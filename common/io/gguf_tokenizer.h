// The tokenizer inside a GGUF file, and what else it says of texts, as the files that Hugging
// Face's directories have: tokenizer.json, tokenizer_config.json, generation_config.json and
// chat_template.jinja. SentencePiece's scores become merges, BERT's words get their "##" back. A
// kind of tokenizer without a name here has no files. Knows no encoding: that is
// text/tokenizer.h's.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "io/gguf.h"

namespace split {

// Texts by file name; `gpt2`: the model is GPT-2, whose tokenizer has to be GPT-2's too. Throws
// Error(kInput) for lists that do not belong together.
std::map<std::string, std::string> gguf_text_files(const Gguf& file, bool gpt2);

// JSON with strings of the file as text. Throws Error(kInput) that names `what` where they are no
// UTF-8.
std::string gguf_json_text(const Gguf& file, const Json& json, const char* what);

}  // namespace split
