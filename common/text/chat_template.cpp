#include "text/chat_template.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"
#include "base/resources/memory_budget.h"

namespace split {
namespace {

constexpr int kMostDepth = 64;

void pay(MemoryShare* memory, uint64_t bytes) {
  if (memory != nullptr) memory->take(bytes);
}

// Returns the text with breaks; frees the text it had.
std::string broken(std::string text, const Tokenizer& tokenizer, MemoryShare* memory) {
  constexpr uint64_t kGrown = 4;  // bytes for each, at most: with a break, in a string that doubles
  if (text.size() >= sizeof(std::string) / 2) pay(memory, kGrown * text.size());
  return tokenizer.broken(text);
}

// Breaks every text in `value`, names of members too.
Json broken(Json value, const Tokenizer& tokenizer, MemoryShare* memory) {
  if (value.is_string()) return Json(broken(value.take_text(), tokenizer, memory));
  if (value.is_array()) {
    Json::Array values = value.take_array();
    for (Json& one : values) one = broken(std::move(one), tokenizer, memory);
    return Json(std::move(values));
  }
  if (!value.is_object()) return value;
  Json::Object members = value.take_object();
  for (auto& [name, one] : members) {
    name = broken(std::move(name), tokenizer, memory);
    one = broken(std::move(one), tokenizer, memory);
  }
  return Json(std::move(members));
}

// Joins parts of content that are text alone: templates know texts or parts, not all know both.
Json joined(Json content, MemoryShare* memory) {
  if (!content.is_array()) return content;
  size_t bytes = 0;
  for (const Json& part : content) {
    const Json *type = part.find("type"), *words = part.find("text");
    if (type == nullptr || *type != "text" || words == nullptr || !words->is_string())
      return content;
    bytes += words->text().size();
  }
  pay(memory, bytes);
  std::string text;
  text.reserve(bytes);
  for (const Json& part : content) text += part["text"].text();
  return Json(std::move(text));
}

// Parses text arguments: templates want an object, and write text as JSON text within JSON text.
void parse_arguments(Json& call, MemoryShare* memory) {
  const Json* function = call.find("function");
  const Json* arguments = function == nullptr ? nullptr : function->find("arguments");
  if (arguments == nullptr || !arguments->is_string()) return;
  try {
    Json object = parse_json(arguments->text(), kMostDepth - 8, "arguments", memory);
    if (object.is_object()) call["function"]["arguments"] = std::move(object);
  } catch (const Error& error) {  // the template takes text as it is
    if (error.kind() != ErrorKind::kInput) throw;
  }
}

Json message_of(Json message, bool knows_developer, MemoryShare* memory) {
  if (!message.is_object()) throw Error(ErrorKind::kInput, "expected objects", "messages");
  Json::Object members = message.take_object();
  for (auto& [name, value] : members) {
    if (name == "content") value = joined(std::move(value), memory);
    if (name == "tool_calls" && value.is_array()) {
      Json::Array calls = value.take_array();
      for (Json& call : calls) parse_arguments(call, memory);
      value = std::move(calls);
    }
    // A template without OpenAI's newer word for "system" would leave the message out.
    if (name == "role" && !knows_developer && value == "developer") value = "system";
  }
  return Json(std::move(members));
}

Json messages_of(Json given, bool knows_developer, MemoryShare* memory) {
  if (!given.is_array() || given.empty()) {
    throw Error(ErrorKind::kInput, "expected a list of messages", "messages");
  }
  Json::Array messages = given.take_array();
  for (Json& one : messages) one = message_of(std::move(one), knows_developer, memory);
  return Json(std::move(messages));
}

// Bytes of the messages' content.
size_t content_bytes(const Json& messages) {
  size_t bytes = 0;
  const auto add = [&](const Json* text) {
    bytes += text != nullptr && text->is_string() ? text->text().size() : 0;
  };
  if (!messages.is_array()) return 0;
  for (const Json& message : messages) {
    const Json* const content = message.find("content");
    add(content);
    if (content == nullptr || !content->is_array()) continue;
    for (const Json& part : *content) add(part.find("text"));
  }
  return bytes;
}

// Refuses text that is more than `most` tokens for certain, before anything is made of it.
void check_bytes(size_t bytes, const Tokenizer& tokenizer, size_t most) {
  if (tokenizer.may_shorten() || bytes / tokenizer.longest() <= most) return;
  throw Error(ErrorKind::kInput,
              cat("'messages': expected at most ", most, " tokens, got a chat of ", bytes,
                  " bytes: cloud_server's --context bounds it"),
              "messages");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// The chat up to the end of its last message's content.
std::string cut_behind(std::string text, const std::optional<std::string>& content) {
  if (!content) {
    throw Error(ErrorKind::kInput, "continue_final_message: expected a last message with text",
                "messages");
  }
  const std::string_view last = *content, words = trimmed(last);
  const size_t at = text.rfind(words);
  if (at == text.npos) {
    throw Error(ErrorKind::kInput,
                "continue_final_message: the template does not write the last message as it is",
                "messages");
  }
  const std::string_view all = last.substr(last.find(words));  // with the spaces behind
  const bool whole = std::string_view(text).substr(at).starts_with(all);
  text.resize(at + (whole ? all.size() : words.size()));
  return text;
}

// Throws for text that is no template.
void expect_jinja(std::string_view text) {
  if (text.find("{{") != text.npos || text.find("{%") != text.npos) return;
  constexpr std::string_view kRole = "{role}", kContent = "{content}";
  const size_t role = text.find(kRole), content = text.find(kContent);
  std::string form = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}";
  if (role != text.npos && content != text.npos && role < content) {
    const auto quoted = [](std::string_view words) {  // its \n means the same there
      std::string out = "'";
      for (const char c : words) out += c == '\'' ? std::string("\\'") : std::string(1, c);
      return out + "'";
    };
    const std::string_view before = text.substr(0, role);
    const std::string_view between =
        text.substr(role + kRole.size(), content - role - kRole.size());
    form = cat("{% for m in messages %}{{ ", quoted(before), " + m.role + ", quoted(between),
               " + m.content + ", quoted(text.substr(content + kContent.size())),
               " }}{% endfor %}{{ ", quoted(cat(before, "assistant", between)), " }}");
  }
  throw Error(ErrorKind::kInput, cat("expected a template in Jinja, like ", form));
}

}  // namespace

ChatTemplate::One ChatTemplate::read(std::string_view text) {
  One one;
  one.knows_developer = text.find("developer") != text.npos;
  try {
    one.jinja = std::make_shared<const JinjaTemplate>(text);
  } catch (const JinjaUnsupported& error) {
    one.unsupported_line = error.line();
    one.error = error.construct();
  } catch (const Error& error) {
    one.error = error.what();
  }
  return one;
}

ChatTemplate::ChatTemplate(std::string_view text, Json tokens)
    : text_(text), default_(read(text)), tokens_(std::move(tokens)) {}

std::string ChatTemplate::given(const std::string& file_or_text) {
  const auto file = file_status(std::filesystem::path(file_or_text));
  std::string text =
      file && file->regular ? read_file(file_or_text, JinjaLimits::kTemplate) : file_or_text;
  expect_jinja(text);
  return text;
}

std::optional<ChatTemplate> ChatTemplate::of_files(
    std::span<const std::string> names, const std::function<std::string(const char*)>& file,
    std::string_view given) {
  const auto present = [&](const char* name) {
    return std::ranges::find(names, name) != names.end();
  };
  const char* const kConfig = "tokenizer_config.json";
  Json config;
  if (present(kConfig)) config = parse_json(file(kConfig), kMostDepth, kConfig);
  Json tokens = Json::object();
  for (const auto& [name, value] : config.members()) {
    const Json* content = value.is_object() ? value.find("content") : &value;
    if (name.ends_with("_token") && content != nullptr && content->is_string()) {
      tokens[name] = content->text();
    }
  }
  if (!given.empty()) return ChatTemplate(given, tokens);
  std::optional<ChatTemplate> chosen;
  const auto choose = [&](std::string_view text, const char* from) {
    chosen.emplace(text, tokens);
    chosen->from_ = from;
  };
  const char* const kFile = "chat_template.jinja";
  const Json* own = config.find("chat_template");
  if (present(kFile)) {
    choose(file(kFile), kFile);
    return chosen;
  }
  if (own == nullptr) return std::nullopt;
  if (own->is_string()) {
    choose(own->text(), kConfig);
    return chosen;
  }
  const auto named = [&](std::string_view wanted) -> const Json* {
    if (!own->is_array()) return nullptr;
    for (const Json& one : *own) {
      const Json *name = one.find("name"), *text = one.find("template");
      if (name != nullptr && *name == wanted && text != nullptr && text->is_string()) return text;
    }
    return nullptr;
  };
  if (const Json* text = named("default")) choose(text->text(), kConfig);
  if (const Json* text = named("tool_use"); text != nullptr && chosen) {
    chosen->tools_ = read(text->text());
    chosen->has_tools_ = true;
  }
  return chosen;
}

Json ChatTemplate::describe() const {
  Json unsupported;
  if (default_.unsupported_line > 0) {
    unsupported = JinjaUnsupported(default_.unsupported_line, default_.error).what();
  } else if (default_.jinja == nullptr) {
    unsupported = default_.error;
  }
  return {{"template", from_},
          {"tools", has_tools_ || text_.find("tools") != text_.npos},
          {"unsupported", std::move(unsupported)}};
}

std::string ChatTemplate::render(ChatInput chat, const JinjaCaller& caller,
                                 const Tokenizer* breaks) const {
  const bool tools = chat.tools.is_array() && !chat.tools.empty();
  const One& one = tools && has_tools_ ? tools_ : default_;
  if (one.unsupported_line > 0) throw JinjaUnsupported(one.unsupported_line, one.error);
  if (one.jinja == nullptr) throw Error(ErrorKind::kInput, one.error);
  const auto data = [&](Json value) {
    if (breaks == nullptr) return value;
    return broken(std::move(value), *breaks, caller.memory);
  };
  Json names = Json::object();
  for (const auto& [name, value] : tokens_.members()) names[name] = value;
  for (auto& [name, value] : chat.more.take_object()) names[name] = data(std::move(value));
  Json messages = data(messages_of(std::move(chat.messages), one.knows_developer, caller.memory));
  std::optional<std::string> last;
  if (chat.continue_final_message) {
    const Json* const content = messages[messages.size() - 1].find("content");
    if (content != nullptr && content->is_string()) {
      pay(caller.memory, content->text().size());
      last = content->text();
    }
  }
  names["messages"] = std::move(messages);
  names["tools"] = tools ? data(std::move(chat.tools)) : Json();
  names["add_generation_prompt"] = chat.add_generation_prompt && !chat.continue_final_message;
  std::string text = one.jinja->render(std::move(names), caller);
  return chat.continue_final_message ? cut_behind(std::move(text), last) : text;
}

std::string ChatTemplate::render(ChatInput chat, const JinjaCaller& caller) const {
  return render(std::move(chat), caller, nullptr);
}

std::vector<int32_t> ChatTemplate::encode(ChatInput chat, const Tokenizer& tokenizer,
                                          bool special_in_content, size_t most,
                                          const JinjaCaller& caller) const {
  check_bytes(content_bytes(chat.messages), tokenizer, most);
  const std::string text =
      render(std::move(chat), caller, special_in_content ? nullptr : &tokenizer);
  const auto breaks = static_cast<size_t>(std::ranges::count(text, kBreak));
  check_bytes(text.size() - (special_in_content ? 0 : breaks), tokenizer, most);
  return tokenizer.encode(text,
                          EncodeOptions{.breaks = !special_in_content, .memory = caller.memory});
}

}  // namespace split
