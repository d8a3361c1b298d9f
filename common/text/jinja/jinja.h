// The part of Jinja that chat templates are written in, bounded: a template is untrusted, so its
// size, the steps, the time and the text of a run and the depth of both have limits, and a template
// can only make a text. trim_blocks and lstrip_blocks are on, as in transformers. A construct of
// Jinja that is missing here throws JinjaUnsupported, which names the line and the construct. Knows
// no chat: the caller defines the names that a template sees.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace split {

// A construct of Jinja that is missing here.
class JinjaUnsupported : public Error {
 public:
  JinjaUnsupported(int line, const std::string& construct)
      : Error(ErrorKind::kInput, cat("line ", line, ": ", construct, " is not supported")),
        line_(line),
        construct_(construct) {}
  int line() const { return line_; }
  const std::string& construct() const { return construct_; }

 private:
  int line_;
  std::string construct_;
};

struct JinjaLimits {
  static constexpr size_t kTemplate = 64 << 10;  // bytes
  static constexpr size_t kOutput = 8 << 20;     // bytes, for any text that a run makes
  static constexpr int64_t kSteps = 1'000'000;   // one more for each 64 bytes or 16 items moved
  static constexpr double kSeconds = 2;          // a run's own time
  static constexpr int kNesting = 64;            // blocks and brackets, and calls
};

// The request that a run is for.
struct JinjaCaller {
  MemoryShare* memory = nullptr;     // pays for values and texts before they are made
  std::function<bool()> waits = {};  // whether the client still waits; asked often
};

// Immutable once made: any number of threads may render one.
class JinjaTemplate {
 public:
  // Throws JinjaUnsupported, and Error(kInput) for text that is no template, or above the limits.
  explicit JinjaTemplate(std::string_view text);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  // Returns the text made of these names, the members of an object. Invalid UTF-8 in strings goes
  // through. Throws JinjaUnsupported; Error(kInput) if the template refuses its input
  // (raise_exception), for an error in it and for a limit, with that as its text; Error(kBusy) if
  // the share has too little or the client has gone.
  std::string render(Json names, const JinjaCaller& caller = {}) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace split
