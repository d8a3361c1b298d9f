// Reads arguments that are written one by one between tags (answer_format.h), byte by byte, and
// tells them as the text of one JSON object. Knows no call around them (call_scanner.h).
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "text/form/answer_format.h"

namespace split {

// Names of the arguments that are JSON; others are texts.
using JsonArguments = std::set<std::string, std::less<>>;

// The texts around an argument.
struct TagTexts {
  explicit TagTexts(const AnswerFormat& format);

  std::string opens, middle, closes;  // without white space
  // White space around a text that does not belong to it, and the tag that ends it.
  std::string lead, trail, mark;
};

// Plain data: copies go on by themselves.
class TaggedScanner {
 public:
  // Takes the next byte and adds what is told by it. False: it is none of an argument's, and
  // neither are the last begun() bytes before it, but for white space.
  bool next(const TagTexts& tags, const JsonArguments& json, char c, std::string& told);
  size_t begun() const { return at_; }

 private:
  enum class Step : uint8_t { kOpens, kKey, kMiddle, kLead, kText, kJson, kCloses };
  void enter(Step step) { step_ = step, at_ = 0; }
  void text(const TagTexts& tags, char c, std::string& told);
  void value(const TagTexts& tags, char c, std::string& told);
  void closes(const TagTexts& tags, size_t matched);

  Step step_ = Step::kOpens;
  size_t at_ = 0;  // bytes of the step's text
  bool later_ = false, is_json_ = false;
  bool in_string_ = false, escaped_ = false;
  std::string held_;  // a key, or read and not told
};

}  // namespace split
