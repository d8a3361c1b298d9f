// Finds the parts of calls in a text of their grammar: names, and arguments as they are written.
// Knows neither tokens nor the next allowed ones (text_form.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/form/answer_form.h"
#include "text/form/tagged_scanner.h"
#include "text/json/quoted.h"

namespace split {

// The texts of a form without their white space, and the tools' names in calls.
struct CallTexts {
  // `json`: each tool's JSON arguments, if arguments are tagged.
  explicit CallTexts(const AnswerForm& form, std::vector<JsonArguments> json = {});

  std::string first, next, middle, closes, list_closes, id_opens, id_closes;
  std::string quote;               // around texts of quoted arguments
  char behind_name;                // the byte that ends a name
  std::vector<std::string> names;  // in calls
  std::vector<std::string> shown;  // for the client
  std::optional<TagTexts> tags;    // texts around tagged arguments
  std::vector<JsonArguments> json;
};

// One run of calls. Plain data, which can be copied at any byte.
class CallScanner {
 public:
  enum class Found : uint8_t { kNothing, kName, kClosed, kListClosed };

  // Takes the next byte, returns what it ended, and adds complete text of a call's arguments. With
  // kName the name is known.
  Found next(const CallTexts& texts, char c, std::string& told);
  // The tool of this call, once its name is known.
  size_t tool() const { return tool_; }
  // Whether a call's name is known and it has not closed.
  bool in_call() const { return step_ >= Step::kMiddle && step_ <= Step::kClose; }

 private:
  enum class Step : uint8_t {
    kHead,
    kName,
    kMiddle,
    kArguments,
    kId,
    kIdText,
    kIdEnd,
    kClose,
    kBetween,
    kListEnd
  };
  void argument(const CallTexts& texts, char c, std::string& told);
  Found behind(const CallTexts& texts);
  void enter(Step step) { step_ = step, at_ = 0; }

  Step step_ = Step::kHead;
  size_t at_ = 0;       // bytes of the step's text, or its nesting
  bool later_ = false;  // behind the first call
  bool in_string_ = false, escaped_ = false;
  TaggedScanner tagged_;
  QuotedScanner quoted_;
  std::string name_;
  size_t tool_ = 0;
};

}  // namespace split
