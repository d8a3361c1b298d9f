// A model's chat template: where its files keep it, the names that it is given, and the ids of what
// it makes. What messages and tools say is data: special tokens in them are plain text unless the
// caller wants otherwise. Nothing is added around a chat, since templates write their own first
// token.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "text/jinja/jinja.h"
#include "text/tokenizer.h"

namespace split {

struct ChatInput {
  Json messages;  // a list of objects; arguments of tool calls may be text, as OpenAI has them
  Json tools;     // a list, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is the beginning of the answer
  Json more = Json::object();           // other names for the template
};

// Immutable once made.
class ChatTemplate {
 public:
  // `tokens`: bos_token, eos_token and so on, for the template. A text that is no template, or that
  // has what is not known here, is said when it is used.
  explicit ChatTemplate(std::string_view text, Json tokens = Json::object());

  // That of a model: chat_template.jinja, else tokenizer_config.json's, which may be a list of
  // named ones ("default", and "tool_use" for chats with tools). Nothing where there is none.
  // With `own`, this text in its place. Throws Error(kInput) for a damaged tokenizer_config.json.
  static std::optional<ChatTemplate> of_files(std::span<const std::string> names,
                                              const std::function<std::string(const char*)>& file,
                                              std::string_view own = {});
  // The template that a flag gives: a file's text, or the flag's own. Throws Error(kInput) for text
  // without "{{" and "{%", and says how it is written in Jinja, the earlier "{role}: {content}"
  // too; Error(kIo).
  static std::string given(const std::string& file_or_text);

  // The text as it is written, of the template for chats without tools.
  const std::string& text() const { return text_; }
  // {"template","tools","unsupported"}: the file that it comes from or "given", whether it reads
  // tools, and what in it is not known here, or null.
  Json describe() const;

  // The chat as text. Throws as JinjaTemplate does.
  std::string render(ChatInput chat, const JinjaCaller& caller = {}) const;
  // Its ids; with `special_in_content`, special tokens in messages are these. A chat too long to be
  // `most` ids is refused before it is rendered, and what it became before it is encoded, which
  // takes many times its size.
  std::vector<int32_t> encode(ChatInput chat, const Tokenizer& tokenizer,
                              bool special_in_content = false, size_t most = SIZE_MAX,
                              const JinjaCaller& caller = {}) const;

 private:
  struct One {
    std::shared_ptr<const JinjaTemplate> jinja;
    std::string error;  // why there is none
    int unsupported_line = 0;
    bool knows_developer = false;
  };
  static One read(std::string_view text);
  std::string render(ChatInput chat, const JinjaCaller& caller, const Tokenizer* breaks) const;

  std::string text_, from_ = "given";
  One default_, tools_;
  bool has_tools_ = false;
  Json tokens_;
};

}  // namespace split
