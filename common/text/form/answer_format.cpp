#include "text/form/answer_format.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "text/form/marks.h"
#include "text/json/quoted.h"

namespace split {
namespace {

// Texts of the probes, not found in any template.
constexpr const char *kSaid = "~said~", *kWhy = "~why~", *kFirst = "alpha_probe",
                     *kSecond = "zeta_probe", *kKey = "key_probe", *kValue = "value_probe",
                     *kOtherKey = "other_probe";
constexpr const char *kShortId = "probe0123", *kLongId = "call_probe_0123456789";

std::string_view bare_text(std::string_view text) {
  const size_t begin = first_word(text);
  return text.substr(begin, std::max(begin, behind_words(text)) - begin);
}

size_t shared_front(std::string_view a, std::string_view b) {
  return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

size_t shared_end(std::string_view a, std::string_view b) {
  size_t n = 0;
  while (n < std::min(a.size(), b.size()) && a[a.size() - 1 - n] == b[b.size() - 1 - n]) ++n;
  return n;
}

// Where arguments stand: [begin, end).
struct Place {
  size_t begin = 0, end = 0;
};
std::optional<Place> json_in(std::string_view text, const Json& value, size_t from) {
  for (size_t begin = text.find('{', from); begin != text.npos; begin = text.find('{', begin + 1)) {
    for (size_t end = text.find('}', begin); end != text.npos; end = text.find('}', end + 1)) {
      try {
        if (parse_json(text.substr(begin, end + 1 - begin), 8, "") == value)
          return Place{begin, end + 1};
      } catch (const Error&) {
        continue;
      }
    }
  }
  return std::nullopt;
}

Json probe_tool(const char* name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description", "A probe."},
            {"parameters", {{"type", "object"}, {"properties", Json::object()}}}}}};
}

// Renders chats with a template. Returns nothing for a chat that it refuses.
class Probe {
 public:
  explicit Probe(const ChatTemplate& chat) : chat_(chat) {}

  std::optional<std::string> render(const Json& messages, bool tools, bool generation = false) {
    if (++renderings_ > kMostRenderings) return std::nullopt;
    ChatInput input;
    input.messages = messages;
    if (tools) input.tools = Json::array({probe_tool(kFirst), probe_tool(kSecond)});
    input.add_generation_prompt = generation;
    try {
      return chat_.render(std::move(input));
    } catch (const Error&) {
      return std::nullopt;
    }
  }

 private:
  static constexpr int kMostRenderings = 16;
  const ChatTemplate& chat_;
  int renderings_ = 0;
};

const Json kUser = {{"role", "user"}, {"content", "~asked~"}};

Json answered(const char* thought = nullptr) {
  Json message = {{"role", "assistant"}, {"content", kSaid}};
  if (thought != nullptr) message["reasoning_content"] = thought;
  return Json::array({kUser, std::move(message)});
}

struct ProbeCall {
  const char *name, *id;
  Json arguments;
};
Json called(std::initializer_list<ProbeCall> calls, const char* thought = nullptr) {
  Json list = Json::array();
  for (const ProbeCall& one : calls) {
    list.push_back({{"id", one.id},
                    {"type", "function"},
                    {"function", {{"name", one.name}, {"arguments", one.arguments}}}});
  }
  Json message = {{"role", "assistant"}, {"content", thought != nullptr ? kSaid : ""}};
  if (thought != nullptr) message["reasoning_content"] = thought;
  message["tool_calls"] = std::move(list);
  return Json::array({kUser, std::move(message)});
}

// Takes an id out of the text behind arguments, and notes the marks around it. Returns false if it
// does not follow them at once.
bool take_id(std::string& behind, const std::string& id, FormMarks& marks) {
  const size_t at = behind.find(id);
  if (at == behind.npos) return true;
  if (at == 0) return false;
  size_t end = at + id.size();
  marks.opens = behind.substr(0, at);
  if (marks.opens.back() == '"' && behind[end] == '"') ++end;
  marks.closes = behind.substr(at + id.size(), end - at - id.size());
  behind.erase(0, end);
  return !marks.closes.empty();
}

// The parts of one call in a text of calls.
struct Parts {
  std::string before, middle, behind;
  size_t arguments_end = 0;
};
std::optional<Place> arguments_in(const AnswerFormat& format, std::string_view text,
                                  const Json& arguments, size_t from) {
  if (!format.quote.empty()) {
    const std::string all = quoted_json(arguments, format.quote);
    return text.substr(from).starts_with(all) ? std::optional(Place{from, from + all.size()})
                                              : std::nullopt;
  }
  if (format.argument.opens.empty()) return json_in(text, arguments, from);
  const std::string all = cat(format.argument.opens, kKey, format.argument_middle,
                              arguments.at(kKey).text(), format.argument.closes);
  const size_t at = text.find(all, from);
  return at == text.npos ? std::nullopt : std::optional(Place{at, at + all.size()});
}

std::optional<Parts> parts_of(const AnswerFormat& format, std::string_view text, const char* name,
                              const Json& arguments, size_t from = 0) {
  const size_t at = text.find(name, from);
  if (at == text.npos) return std::nullopt;
  const size_t name_end = at + std::string_view(name).size();
  const auto place = arguments_in(format, text, arguments, name_end);
  if (!place) return std::nullopt;
  return Parts{std::string(text.substr(from, at - from)),
               std::string(text.substr(name_end, place->begin - name_end)),
               std::string(text.substr(place->end)), place->end};
}

// Texts before, between and behind a key and its value.
struct Pair {
  std::string_view before, between, behind;
};
std::optional<Pair> pair_of(std::string_view text, std::string_view key, std::string_view value) {
  const size_t at = text.find(key);
  if (at == text.npos) return std::nullopt;
  const size_t behind = at + key.size(), value_at = text.find(value, behind);
  if (value_at == text.npos) return std::nullopt;
  return Pair{text.substr(0, at), text.substr(behind, value_at - behind),
              text.substr(value_at + value.size())};
}

// Finds how each argument is written by itself. `one` and `two` are the texts behind a call's name,
// with a text argument, and with a number behind that.
bool find_arguments(std::string_view one, std::string_view two, AnswerFormat& format) {
  const auto alone = pair_of(one, kKey, kValue), first = pair_of(two, kKey, kValue);
  const auto later = first ? pair_of(first->behind, kOtherKey, "75025") : std::nullopt;
  if (!alone || !later || first->before != alone->before || first->between != alone->between ||
      later->between != alone->between || later->behind != alone->behind) {
    return false;
  }
  std::string_view closes = alone->behind.substr(0, shared_front(alone->behind, later->before));
  const size_t open = closes.rfind('<');  // start of a tag that both share in part
  if (open != closes.npos && closes.find('>', open) == closes.npos) closes = closes.substr(0, open);
  const std::string_view opens = later->before.substr(closes.size());
  if (!alone->before.ends_with(opens)) return false;
  format.argument = {std::string(opens), std::string(closes)};
  format.argument_middle = alone->between;
  return true;
}

// Finds the mark around texts in arguments that are at once behind a call's name.
std::string quote_in(std::string_view arguments) {
  const auto pair = pair_of(arguments, kKey, kValue);
  const bool fits = pair && pair->before == "{" && pair->between.starts_with(':');
  const std::string_view quote = fits ? pair->between.substr(1) : "";
  return std::string(is_quote(quote) ? quote : "");
}

// Finds how calls are written, into `format`. Returns false if no syntax is known.
bool find_calls(Probe& probe, AnswerFormat& format) {
  const Json first = {{kKey, kValue}}, second = {{kKey, "value_other"}},
             both_kinds = {{kKey, kValue}, {kOtherKey, 75025}};
  const auto plain = probe.render(answered(), true);
  auto one = probe.render(called({{kFirst, kLongId, first}}), true);
  format.short_ids = !one;
  const char* const id = one ? kLongId : kShortId;
  if (!one) one = probe.render(called({{kFirst, id, first}}), true);
  if (!plain || !one) return false;
  const auto two = probe.render(called({{kFirst, id, first}, {kSecond, id, second}}), true);
  size_t front = shared_front(*plain, *one), end = shared_end(*plain, *one);
  if (two) front = std::min(front, shared_front(*one, *two));
  if (two) end = std::min(end, shared_end(*one, *two));
  if (front + end > one->size()) return false;
  const auto inner = [&](const std::string& text) {
    return std::string_view(text).substr(front, text.size() - front - end);
  };
  const auto behind = [&](const std::string& text) {
    const std::string_view call = inner(text);
    const size_t at = call.find(kFirst);
    return at == call.npos ? "" : call.substr(at + std::string_view(kFirst).size());
  };
  auto alone = parts_of(format, inner(*one), kFirst, first);
  if (!alone && !(format.quote = quote_in(behind(*one))).empty()) {
    const Json nested = {{kKey, {{kOtherKey, Json::array({kValue, 75025, true})}}}};
    const auto deep = probe.render(called({{kFirst, id, nested}}), true);
    if (!deep || deep->size() < front + end || !parts_of(format, inner(*deep), kFirst, nested))
      return false;
    format.calls = AnswerFormat::Calls::kQuoted;
    alone = parts_of(format, inner(*one), kFirst, first);
  }
  if (!alone) {
    const auto many = probe.render(called({{kFirst, id, both_kinds}}), true);
    if (!many || many->size() < front + end || !find_arguments(behind(*one), behind(*many), format))
      return false;
    format.calls = AnswerFormat::Calls::kTagged;
    alone = parts_of(format, inner(*one), kFirst, first);
  }
  if (!alone || alone->middle.empty() == format.quote.empty() ||
      !take_id(alone->behind, id, format.id))
    return false;
  if (alone->before.find(id) != std::string::npos || alone->middle.find(id) != std::string::npos)
    return false;
  format.middle = alone->middle;
  format.one_call = !two;
  if (!two) {
    format.opens = alone->before;
    format.closes = alone->behind;
    return true;
  }
  const std::string_view both = inner(*two);
  const auto a = parts_of(format, both, kFirst, first);
  if (!a) return false;
  auto b = parts_of(format, both, kSecond, second, a->arguments_end);
  if (!b || !take_id(b->before, id, format.id) || !take_id(b->behind, id, format.id)) return false;
  format.closes = b->before.substr(0, shared_front(b->before, b->behind));
  const std::string rest = b->before.substr(format.closes.size());
  format.opens = rest.substr(rest.size() - shared_end(rest, alone->before));
  format.separator = rest.substr(0, rest.size() - format.opens.size());
  format.list.opens = alone->before.substr(0, alone->before.size() - format.opens.size());
  format.list.closes = b->behind.substr(format.closes.size());
  return true;
}

// The tag or word at a text's end, or at its begin.
std::string_view tag_at_end(std::string_view text) {
  text = bare_text(text);
  if (text.empty()) return text;
  size_t begin = text.find_last_of(kFormSpaces) + 1;
  if (text.back() == '>') begin = text.rfind('<');
  if (text.back() == ']') begin = text.rfind('[');
  return begin == text.npos ? std::string_view() : text.substr(begin);
}

std::string_view tag_at_front(std::string_view text) {
  text = bare_text(text);
  if (text.empty()) return text;
  const char close = text.front() == '<' ? '>' : text.front() == '[' ? ']' : '\0';
  const size_t end = close == '\0' ? text.find_first_of(kFormSpaces) : text.find(close);
  return text.substr(0, end == text.npos ? end : end + (close == '\0' ? 0 : 1));
}

// The closing tag of <word> or [word]: it has a stroke.
std::string counterpart(std::string_view tag) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  if (tag.size() < 3 || !std::ranges::all_of(tag.substr(1, tag.size() - 2), letter)) return {};
  return std::string(1, tag[0]) + '/' + std::string(tag.substr(1));
}

void find_thoughts(Probe& probe, const ChatTemplate& chat, AnswerFormat& format) {
  auto thought = probe.render(answered(kWhy), false);
  if (thought && thought->find(kWhy) == std::string::npos) {
    // Gemma 4's write it before calls alone.
    thought = probe.render(called({{kFirst, kLongId, {{kKey, kValue}}}}, kWhy), true);
  }
  const size_t why = thought ? thought->find(kWhy) : std::string::npos;
  if (why != std::string::npos) {
    const std::string_view text = *thought;
    const size_t behind = why + std::string_view(kWhy).size(), words = text.find(kSaid, behind);
    if (words == text.npos) return;
    const std::string_view opens = tag_at_end(text.substr(0, why)),
                           between = text.substr(behind, words - behind),
                           closes = tag_at_front(between);
    if (!opens.empty() && !closes.empty() && between.find(opens) == between.npos) {
      format.thought = {std::string(opens), std::string(closes)};
    }
    return;
  }
  const auto prompt = probe.render(Json::array({kUser}), false, true);
  if (!prompt) return;
  const std::string_view opens = tag_at_end(*prompt);
  std::string closes = counterpart(opens);
  if (!closes.empty() && chat.text().find(closes) != std::string::npos) {
    format.thought = {std::string(opens), std::move(closes)};
  }
}

}  // namespace

AnswerFormat AnswerFormat::of(const ChatTemplate* chat) {
  AnswerFormat prompted;
  prompted.calls = Calls::kPrompted;
  prompted.opens = "<tool_call>\n{\"name\": \"";
  prompted.middle = "\", \"arguments\": ";
  prompted.closes = "}\n</tool_call>";
  prompted.separator = "\n";
  if (chat == nullptr) return prompted;
  Probe probe(*chat);
  const Json asked = Json::array({kUser});
  const auto bare = probe.render(asked, false, true), tools = probe.render(asked, true, true);
  if (!bare) return {};
  const bool writes_tools = !tools || tools->find(kFirst) != std::string::npos;
  AnswerFormat format = writes_tools ? AnswerFormat() : prompted;
  if (!writes_tools) {
    const Json system = {{"role", "system"}, {"content", kSaid}};
    const auto told = probe.render(Json::array({system, kUser}), false, true);
    format.no_system = !told || told->find(kSaid) == std::string::npos;
  } else if (AnswerFormat found; find_calls(probe, found)) {
    if (found.calls == Calls::kNone) found.calls = Calls::kJson;
    if (found.calls != Calls::kTagged || found.has_tags()) format = std::move(found);
  }
  find_thoughts(probe, *chat, format);
  return format;
}

Json AnswerFormat::describe_calls() const {
  switch (calls) {
    case Calls::kJson:
      return "json";
    case Calls::kTagged:
      return "tagged";
    case Calls::kQuoted:
      return "quoted";
    case Calls::kPrompted:
      return "prompted";
    case Calls::kNone:
      break;
  }
  return {};
}

bool AnswerFormat::has_tags() const {
  constexpr size_t kLeastTag = 3, kMostTag = 64;
  const std::string_view key = bare_text(argument_middle), mark = bare_text(argument.closes);
  const std::string more = without_spaces(argument.opens), over = without_spaces(closes);
  const auto plain = [](char c) { return c >= 0x20 && c < 0x7f; };
  return !key.empty() && argument_middle.starts_with(key) && mark.starts_with('<') &&
         mark.size() >= kLeastTag && mark.size() <= kMostTag && std::ranges::all_of(mark, plain) &&
         !more.starts_with(over) && !over.starts_with(more) && id.opens.empty();
}

std::string AnswerFormat::mark() const {
  const std::string text = list.opens + opens;
  const size_t begin = std::min(text.find_first_not_of(kFormSpaces), text.size());
  const size_t end = text[begin] == '{' ? begin : text.find_first_of(" \t\n\r{[", begin + 1);
  std::string mark = text.substr(begin, std::min(end, text.size()) - begin);
  if (mark.starts_with('<')) mark = mark.substr(0, std::min(mark.find('>'), mark.size() - 1) + 1);
  constexpr size_t kLeast = 3;  // shorter texts are no mark
  return mark.size() < kLeast ? "" : mark;
}

}  // namespace split
