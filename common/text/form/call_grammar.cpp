#include "text/form/call_grammar.h"

#include <algorithm>

#include "base/error.h"
#include "text/form/call_scanner.h"
#include "text/form/marks.h"
#include "text/json/json_grammar.h"

namespace split {
namespace {

using Sequence = JsonRules::Sequence;
using Symbol = JsonRules::Symbol;

constexpr size_t kMostSpaces = 4;    // before a text of the form
constexpr size_t kMostSpecial = 32;  // special tokens of a form
constexpr size_t kMostIdBytes = 64;  // a call's id

// A name for a header and a line of log.
std::string plain_name(std::string name) {
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
    if (!plain) c = '_';
  }
  return name;
}

class FormRules {
 public:
  FormRules(const AnswerForm& form, MemoryShare* memory)
      : form_(form), format_(form.format), memory_(memory), rules_(memory) {}

  // Whether a grammar holds the words, or calls in their place, from the answer's start on.
  bool holds() const { return form_.schema || form_.choice == AnswerForm::Choice::kRequired; }

  Grammar make(FormGrammar& made) {
    rules_.quote_by(form_.calls() ? format_.quote : "");
    if (form_.calls()) rules_.any_value();  // the fallback for loosened arguments
    if (form_.calls() && is_tagged()) make_tags();
    const Sequence lead = {rules_.at_most(rules_.bytes(kFormSpaces), kMostSpaces)};
    const bool must = form_.choice == AnswerForm::Choice::kRequired;
    const bool words_call = must || (form_.calls() && (!form_.schema || !format_.mark().empty()));
    std::vector<Sequence> starts;
    if (words_call) starts.push_back(JsonRules::join({lead, calls(made)}));
    if (words_call && !holds()) made.call = rules_.either(starts).index;
    rules_.quote_by("");
    if (form_.schema && !must) {
      starts.push_back({words(made)});
      if (format_.thinks()) starts.back() = JsonRules::join({lead, starts.back()});
    }
    if (holds()) {
      made.begin = made.behind = rules_.either(starts).index;
      if (format_.thinks() && !form_.inside) {
        starts.push_back(JsonRules::join({lead, rules_.lit(format_.thought.opens)}));
        made.begin = rules_.either(starts).index;
      }
    }
    return rules_.take(rules_.either({{}}));
  }

 private:
  // A text whose white space may differ.
  Sequence loose(std::string_view text) {
    Sequence out;
    while (!text.empty()) {
      const size_t words = std::min(text.find_first_of(kFormSpaces), text.size());
      const Sequence literal = rules_.lit(text.substr(0, words));
      out.insert(out.end(), literal.begin(), literal.end());
      text.remove_prefix(words);
      if (text.empty()) break;
      const size_t spaces = std::min(text.find_first_not_of(kFormSpaces), text.size());
      std::vector<Sequence> alternatives = {{}, {rules_.bytes(kFormSpaces)}};
      if (spaces > 1) alternatives.push_back(rules_.lit(text.substr(0, spaces)));
      out.push_back(rules_.either(alternatives));
      text.remove_prefix(spaces);
    }
    return out;
  }

  bool is_tagged() const { return format_.calls == AnswerFormat::Calls::kTagged; }

  Symbol arguments(const AnswerForm::Tool& tool, FormGrammar& made) {
    rules_.allow(form_.tools.size() + form_.tools.size() / 4 + 1);  // names take a part, too
    if (is_tagged()) made.json.emplace_back();
    if (tool.parameters.empty()) return rules_.either({rules_.lit(is_tagged() ? "" : "{}")});
    std::vector<std::string> loosened;
    const Json schema =
        parse_json(tool.parameters, AnswerForm::kMostDepth, "a tool's parameters", memory_);
    const Symbol rule = is_tagged() ? tagged(schema, loosened, made.json.back())
                                    : arguments_rule(rules_, schema, memory_, loosened);
    for (const std::string& one : loosened)
      made.loosened.push_back(cat(plain_name(tool.name), ".", one));
    return rule;
  }

  // Makes the rules around tagged arguments, and the rules of any arguments.
  void make_tags() {
    const std::string &closes = format_.argument.closes, &between = format_.argument_middle;
    const size_t mark_end = behind_words(closes);
    mark_ = closes.substr(0, mark_end).substr(first_word(closes));
    opens_ = rules_.either({loose(format_.argument.opens)});
    key_end_ = rules_.either({rules_.lit(between.substr(0, behind_words(between)))});
    any_text_ = rules_.either(
        {JsonRules::join({{key_end_, rules_.text_until(mark_)}, loose(closes.substr(mark_end))})});
    // Around a listed text no white space may be missing: the text's own would be taken for the
    // form's.
    listed_opens_ = rules_.either({rules_.lit(between)});
    listed_closes_ = rules_.either({JsonRules::join(
        {rules_.lit(closes.substr(0, mark_end)), loose(closes.substr(mark_end))})});
    json_opens_ = rules_.either({loose(between)});
    json_closes_ = rules_.either({loose(closes)});
    const Symbol letter = rules_.character_but(cat(kFormSpaces, between.front()));
    any_arguments_ = rules_.many({opens_, letter, rules_.many({letter}), any_text_});
  }

  // The arguments of a tool, one after the other.
  Symbol tagged(const Json& schema, std::vector<std::string>& loosened, JsonArguments& json) {
    const auto rules = argument_rules(rules_, schema, memory_, loosened);
    if (!rules) return any_arguments_;
    try {
      Sequence all;
      for (const ArgumentRule& one : *rules) {
        const Sequence argument =
            JsonRules::join({{opens_}, rules_.lit(key_of(one.name)), {value(one, loosened)}});
        all.push_back(one.required ? rules_.either({argument}) : rules_.either({{}, argument}));
        if (one.json) json.insert(one.name);
      }
      return rules_.either({all});
    } catch (const Error& error) {  // too large, or a name that is impossible in a tag
      if (error.kind() != ErrorKind::kInput) throw;
      json.clear();
      loosened.emplace_back("schema");
      return any_arguments_;
    }
  }

  std::string_view key_of(std::string_view name) const {
    const bool fits = !name.empty() && std::ranges::none_of(name, [&](char c) {
      return static_cast<uint8_t>(c) < 0x20 || c == format_.argument_middle.front();
    });
    if (!fits) throw Error(ErrorKind::kInput, "a name that no tag can have");
    return name;
  }

  Symbol value(const ArgumentRule& one, std::vector<std::string>& loosened) {
    if (one.json) return rules_.either({{json_opens_, *one.json, json_closes_}});
    if (one.texts.empty()) return any_text_;
    std::vector<Sequence> listed;
    for (const std::string& text : one.texts) {
      if ((text + mark_).find(mark_) < text.size()) continue;
      listed.push_back(JsonRules::join({{listed_opens_}, rules_.lit(text), {listed_closes_}}));
    }
    if (!listed.empty()) return rules_.either(listed);
    loosened.emplace_back("enum");
    return any_text_;
  }

  Sequence calls(FormGrammar& made) {
    const CallTexts texts(form_);
    const Symbol middle = rules_.either({loose(format_.middle)});
    std::vector<Sequence> each;
    for (size_t i = 0; i < form_.tools.size(); ++i) {
      const Symbol rule = arguments(form_.tools[i], made);
      rules_.allow(1);
      each.push_back(JsonRules::join({rules_.lit(texts.names[i]), {middle, rule}}));
    }
    Sequence end = loose(format_.closes);
    if (!format_.id.opens.empty()) {
      const Symbol letter =
          rules_.bytes("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
      const Sequence id = JsonRules::join({loose(format_.id.opens),
                                           {letter, rules_.at_most(letter, kMostIdBytes - 1)},
                                           loose(format_.id.closes)});
      end = JsonRules::join({{rules_.either({{}, id})}, end});
    }
    const Symbol call =
        rules_.either({JsonRules::join({loose(format_.opens), {rules_.either(each)}, end})});
    const bool in_list = !format_.list.closes.empty();
    const bool several = form_.parallel && !format_.one_call && (in_list || holds());
    Sequence list = JsonRules::join({loose(format_.list.opens), {call}});
    if (several) {
      list.push_back(rules_.many(JsonRules::join({loose(format_.separator), {call}})));
    }
    return JsonRules::join({list, loose(format_.list.closes)});
  }

  Symbol words(FormGrammar& made) {
    if (form_.schema->empty()) return rules_.any_object();
    const Json schema = parse_json(*form_.schema, AnswerForm::kMostDepth, "the schema", memory_);
    return schema_rule(rules_, schema, memory_, made.loosened);
  }

  const AnswerForm& form_;
  const AnswerFormat& format_;
  MemoryShare* memory_;
  JsonRules rules_;
  // Rules of tagged arguments.
  std::string mark_;
  Symbol opens_, key_end_, any_text_, listed_opens_, listed_closes_, json_opens_, json_closes_,
      any_arguments_;
};

}  // namespace

std::vector<int32_t> special_tokens(const AnswerFormat& format, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  for (const std::string* text :
       {&format.list.opens, &format.opens, &format.middle, &format.closes, &format.separator,
        &format.list.closes, &format.quote, &format.thought.opens, &format.thought.closes,
        &format.argument.opens, &format.argument_middle, &format.argument.closes}) {
    for (const int32_t id : tokenizer.encode(*text)) {
      const bool there = std::ranges::find(ids, id) != ids.end();
      if (tokenizer.is_special(id) && !there && ids.size() < kMostSpecial) ids.push_back(id);
    }
  }
  return ids;
}

FormGrammar form_grammar(const AnswerForm& form, const Tokenizer& tokenizer, MemoryShare* memory) {
  FormGrammar made;
  if (!form.schema && !form.calls()) return made;
  Grammar grammar = FormRules(form, memory).make(made);
  made.tokens = std::make_shared<const TokenGrammar>(std::move(grammar), tokenizer,
                                                     special_tokens(form.format, tokenizer));
  return made;
}

}  // namespace split
