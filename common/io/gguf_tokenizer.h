// The tokenizer in a GGUF file, and its other facts about texts, as files of Hugging Face's
// directories: tokenizer.json, tokenizer_config.json, generation_config.json and
// chat_template.jinja. SentencePiece's scores become merges, BERT's words get their "##" back. An
// unsupported kind of tokenizer has no files. Encoding is text/tokenizer.h's.
#pragma once

#include <map>
#include <string>

#include "base/json.h"
#include "io/gguf.h"

namespace split {

// Returns texts by file name. `gpt2`: the model is GPT-2, and its tokenizer must be, too. Throws
// Error(kInput) for inconsistent lists.
std::map<std::string, std::string> gguf_text_files(const Gguf& file, bool gpt2);

// Writes JSON with strings of the file. Throws Error(kInput) that names `what` if they are not
// UTF-8.
std::string gguf_json_text(const Gguf& file, const Json& json, const char* what);

}  // namespace split
