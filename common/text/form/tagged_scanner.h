// Reads arguments between tags (answer_format.h), byte by byte, and writes them as the text of one
// JSON object. Knows no call around them (call_scanner.h).
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
  // White space around a text and outside of it, and the tag that ends it.
  std::string lead, trail, mark;
};

// Plain data, which can be copied at any byte.
class TaggedScanner {
 public:
  // Takes the next byte and adds complete text. Returns false if it belongs to no argument; the
  // last begun() bytes before it do not either, white space aside.
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
  std::string held_;  // a key, or text read and not yet passed on
};

}  // namespace split
