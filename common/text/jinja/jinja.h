// The part of Jinja that chat templates are written in, bounded: a template comes from anywhere, so
// its size, the steps, the time and the text of a run and the depth of both have limits, and no
// template can do more than make a text. trim_blocks and lstrip_blocks are on, as transformers has
// them. What Jinja knows and this does not is JinjaUnsupported, which names the line and the
// construct. Knows no chat: the names that a template sees are the caller's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace split {

// A construct of Jinja that is not here.
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
  static constexpr size_t kOutput = 8 << 20;     // bytes, of any text that a run makes
  static constexpr int64_t kSteps = 1'000'000;   // and one more for each 64 bytes or 16 items moved
  static constexpr double kSeconds = 2;          // of a run's work
  static constexpr int kNesting = 64;            // of blocks and brackets, and of calls
};

// The one that a run is for.
struct JinjaCaller {
  MemoryShare* memory = nullptr;     // pays for values and texts before they are made
  std::function<bool()> waits = {};  // whether anybody still waits for it; asked often
};

// Immutable once made: any number of threads may render one.
class JinjaTemplate {
 public:
  // Throws JinjaUnsupported, and Error(kInput) for what is no template, or above the limits.
  explicit JinjaTemplate(std::string_view text);
  ~JinjaTemplate();
  JinjaTemplate(JinjaTemplate&&) noexcept;
  JinjaTemplate& operator=(JinjaTemplate&&) noexcept;

  // The text that it makes of these names, the members of an object. Bytes of strings that are not
  // UTF-8 go through. Throws JinjaUnsupported; Error(kInput) for what the template refuses
  // (raise_exception), for an error in it and for a limit, with that as its text; Error(kBusy)
  // where the share has too little or nobody waits.
  std::string render(Json names, const JinjaCaller& caller = {}) const;

 private:
  struct Tree;
  std::unique_ptr<const Tree> tree_;
};

}  // namespace split
