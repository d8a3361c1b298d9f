// The form of one answer: how thoughts and calls are written, which tools there are, which may or
// must be called, and the schema of its words. Plain data, and the only place that writes and reads
// its JSON: the form travels to the machine that computes the text. Knows no grammar.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/form/answer_format.h"

namespace split {

struct AnswerForm {
  struct Tool {
    std::string name;
    std::string parameters;  // a JSON schema as text; empty: no parameters
  };
  // kRequired: at least one of these tools is called before anything but a thought.
  enum class Choice : uint8_t { kNone, kAuto, kRequired };
  static constexpr size_t kMostTools = 128, kMostName = 128, kMostBytes = 1 << 20;
  static constexpr int kMostDepth = 64;  // nesting of a schema

  AnswerFormat format = {};
  bool inside = false;  // the prompt has begun a thought
  Choice choice = Choice::kNone;
  bool parallel = true;  // more than one call
  std::vector<Tool> tools = {};
  std::optional<std::string> schema = {};  // the words' schema, as text; empty: any object

  bool calls() const { return choice != Choice::kNone; }
  // Returns the response_format: plain if there is only a schema, else {"type":"answer_form",...}.
  Json to_json() const;
  // Reads {"type":"answer_form",...}. Throws Error(kInput) about response_format.
  static AnswerForm read(const Json& json);
};

}  // namespace split
