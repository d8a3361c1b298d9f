// A model's chat template: which file has it, the names that it is given, and the ids of its text.
// Contents of messages and tools are data: special tokens in them are plain text unless the caller
// wants otherwise. Nothing is added around a chat, since templates write their own first token.
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
  Json messages;  // a list of objects; arguments of tool calls may be text, as in OpenAI's API
  Json tools;     // a list, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // the last message is the beginning of the answer
  Json more = Json::object();           // other names for the template
};

// Immutable once made.
class ChatTemplate {
 public:
  // `tokens`: bos_token, eos_token and so on, for the template. Text that is no template, or has
  // unknown constructs, throws when it is used.
  explicit ChatTemplate(std::string_view text, Json tokens = Json::object());

  // Reads a model's template: chat_template.jinja, else tokenizer_config.json's, which may be a
  // list of named ones ("default", and "tool_use" for chats with tools). Returns nothing if there
  // is none. `own` replaces the text. Throws Error(kInput) for a damaged tokenizer_config.json.
  static std::optional<ChatTemplate> of_files(std::span<const std::string> names,
                                              const std::function<std::string(const char*)>& file,
                                              std::string_view own = {});
  // Returns a flag's template: a file's text, or the flag's own. Throws Error(kInput) for text
  // without "{{" and "{%", and says how it is written in Jinja, the earlier "{role}: {content}"
  // too; Error(kIo).
  static std::string given(const std::string& file_or_text);

  // The source of the template for chats without tools.
  const std::string& text() const { return text_; }
  // {"template","tools","unsupported"}: its file or "given", whether it reads tools, and its first
  // unknown construct, or null.
  Json describe() const;

  // Returns the chat as text. Throws the errors of JinjaTemplate.
  std::string render(ChatInput chat, const JinjaCaller& caller = {}) const;
  // Returns the chat's ids; with `special_in_content`, special tokens in messages are recognised. A
  // chat too long for `most` ids is refused before it is rendered, and again before it is encoded,
  // which takes many times its size.
  std::vector<int32_t> encode(ChatInput chat, const Tokenizer& tokenizer,
                              bool special_in_content = false, size_t most = SIZE_MAX,
                              const JinjaCaller& caller = {}) const;

 private:
  struct One {
    std::shared_ptr<const JinjaTemplate> jinja;
    std::string error;  // why it cannot be used
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
