#include "text/chat_template.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace split {
namespace {

constexpr int kMostDepth = 64;

// Every text in `value`, names of members too, with breaks in it.
Json broken(const Json& value, const Tokenizer& tokenizer) {
  if (value.is_string()) return Json(tokenizer.broken(value.text()));
  if (value.is_array()) {
    Json out = Json::array();
    for (const Json& one : value) out.push_back(broken(one, tokenizer));
    return out;
  }
  if (!value.is_object()) return value;
  Json out = Json::object();
  for (const auto& [name, one] : value.members()) {
    out.add(tokenizer.broken(name), broken(one, tokenizer));
  }
  return out;
}

// Parts of content that are text alone, as one text; templates know either, but not all know both.
Json joined(const Json& content) {
  std::string text;
  if (!content.is_array()) return content;
  for (const Json& part : content) {
    const Json *type = part.find("type"), *words = part.find("text");
    if (type == nullptr || *type != "text" || words == nullptr || !words->is_string())
      return content;
    text += words->text();
  }
  return Json(std::move(text));
}

// Templates want arguments as an object, and write text as JSON text within JSON text.
void parse_arguments(Json& message) {
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr || !calls->is_array()) return;
  Json parsed = Json::array();
  for (const Json& call : *calls) {
    Json one = call;
    const Json* function = call.find("function");
    const Json* arguments = function == nullptr ? nullptr : function->find("arguments");
    if (arguments != nullptr && arguments->is_string()) {
      try {
        Json object = parse_json(arguments->text(), kMostDepth - 8, "arguments");
        if (object.is_object()) one["function"]["arguments"] = std::move(object);
      } catch (const Error&) {  // the template takes it as it is
      }
    }
    parsed.push_back(std::move(one));
  }
  message["tool_calls"] = std::move(parsed);
}

// A template that does not know OpenAI's newer word for "system" would leave the message out.
void name_role(Json& message, bool knows_developer) {
  if (knows_developer || !message.contains("role") || message["role"] != "developer") return;
  message["role"] = "system";
}

Json messages_of(const ChatInput& chat, bool knows_developer) {
  if (!chat.messages.is_array() || chat.messages.empty()) {
    throw Error(ErrorKind::kInput, "expected a list of messages", "messages");
  }
  Json messages = Json::array();
  for (const Json& one : chat.messages) {
    if (!one.is_object()) throw Error(ErrorKind::kInput, "expected objects", "messages");
    Json message = one;
    if (const Json* content = one.find("content")) message["content"] = joined(*content);
    parse_arguments(message);
    name_role(message, knows_developer);
    messages.push_back(std::move(message));
  }
  return messages;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\n\r\f\v";
  const size_t begin = std::min(text.find_first_not_of(kSpaces), text.size());
  return text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

// The chat up to the end of its last message's content.
std::string cut_behind(std::string text, const Json& message) {
  const Json* content = message.find("content");
  if (content == nullptr || !content->is_string()) {
    throw Error(ErrorKind::kInput, "continue_final_message: expected a last message with text",
                "messages");
  }
  const std::string_view last = content->text(), words = trimmed(last);
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

// Refuses what is no template.
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
  std::error_code error;
  const bool is_file = std::filesystem::is_regular_file(file_or_text, error);
  std::string text = is_file ? read_file(file_or_text, JinjaLimits::kTemplate) : file_or_text;
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

std::string ChatTemplate::render(const ChatInput& chat, const Tokenizer* breaks) const {
  const bool tools = chat.tools.is_array() && !chat.tools.empty();
  const One& one = tools && has_tools_ ? tools_ : default_;
  if (one.unsupported_line > 0) throw JinjaUnsupported(one.unsupported_line, one.error);
  if (one.jinja == nullptr) throw Error(ErrorKind::kInput, one.error);
  const auto data = [&](const Json& value) {
    return breaks == nullptr ? value : broken(value, *breaks);
  };
  Json names = Json::object();
  for (const auto& [name, value] : tokens_.members()) names[name] = value;
  for (const auto& [name, value] : chat.more.members()) names[name] = data(value);
  const Json messages = data(messages_of(chat, one.knows_developer));
  names["messages"] = messages;
  names["tools"] = tools ? data(chat.tools) : Json();
  names["add_generation_prompt"] = chat.add_generation_prompt && !chat.continue_final_message;
  std::string text = one.jinja->render(names);
  return chat.continue_final_message ? cut_behind(std::move(text), messages[messages.size() - 1])
                                     : text;
}

std::string ChatTemplate::render(const ChatInput& chat) const { return render(chat, nullptr); }

std::vector<int32_t> ChatTemplate::encode(const ChatInput& chat, const Tokenizer& tokenizer,
                                          bool special_in_content, size_t most) const {
  const std::string text = render(chat, special_in_content ? nullptr : &tokenizer);
  if (!tokenizer.may_shorten()) {
    const auto breaks = static_cast<size_t>(std::ranges::count(text, kBreak));
    const size_t bytes = text.size() - (special_in_content ? 0 : breaks);
    if (bytes / tokenizer.longest() > most) {
      throw Error(
          ErrorKind::kInput,
          cat("'messages': expected at most ", most, " tokens, got a chat of ", bytes, " bytes"),
          "messages");
    }
  }
  return tokenizer.encode(text, EncodeOptions{.breaks = !special_in_content});
}

}  // namespace split
