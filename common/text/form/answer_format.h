// How a model writes calls of tools and thoughts, found by rendering chats with its template: no
// model's name decides anything. Knows no tool, no tokenizer and no answer.
#pragma once

#include <string>

#include "text/chat_template.h"

namespace split {

// Texts around a thing, or nothing.
struct FormMarks {
  std::string opens, closes;
};

// A call is `opens` NAME `middle` ARGUMENTS `closes`, with an id behind the arguments if the model
// may write one. Calls in a row have `separator` between them and the list's marks around.
// Arguments are JSON, or, in tagged calls, written one by one: `argument.opens` KEY
// `argument_middle` VALUE `argument.closes`, a text as it is, other values as JSON. In quoted calls
// they are JSON with texts between `quote` (json/quoted.h), at once behind the name.
struct AnswerFormat {
  enum class Calls : uint8_t { kNone, kJson, kTagged, kQuoted, kPrompted };

  Calls calls = Calls::kNone;
  std::string opens, middle, closes, separator;
  std::string quote;  // in quoted calls
  FormMarks list, id, thought, argument;
  std::string argument_middle;
  bool one_call = false;   // the template refuses two calls at once
  bool short_ids = false;  // it refuses ids that are not nine letters and digits
  bool no_system = false;  // it refuses system messages

  // Finds a template's format; without one, calls are written as prompted_calls() says.
  static AnswerFormat of(const ChatTemplate* chat);
  // "json", "tagged", "quoted", "prompted", or null.
  Json describe_calls() const;
  // The text by which a call begins in words: a tag, or up to the first white space or bracket.
  // Empty: calls begin like any JSON, and are recognised by a tool's name.
  std::string mark() const;
  // Whether arguments can be recognised by their tags: closing tags begin with '<' and are ASCII.
  bool has_tags() const;
  bool thinks() const { return !thought.opens.empty(); }
};

}  // namespace split
