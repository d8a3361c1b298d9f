// The checks of a doctor command, each a line: its name, whether it holds, and what was found.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include "program/interrupt.h"
#include "program/world.h"

namespace split {

class Checklist {
 public:
  // A thing that a check needs; if it is missing, the check's line says so.
  struct Need {
    bool there = false;
    std::string_view what = {};
  };
  // Prints nothing from a signal on, if `interrupt` is not null.
  explicit Checklist(const Console& console, const Interrupt* interrupt = nullptr)
      : console_(console), interrupt_(interrupt) {}

  // Runs a check, whose words are printed; an Error of it is bad. Returns whether all is well.
  bool check(std::string_view name, std::initializer_list<Need> needs,
             const std::function<std::string()>& look);
  // Prints what could be installed besides; empty: nothing.
  void advise(std::string_view what);
  // Prints whether all is well. Returns 0, or the exit code of the first bad check.
  int finish();

 private:
  enum class Verdict : uint8_t { kUntried, kOk, kBad };
  void line(std::string_view name, Verdict verdict, std::string_view text) const;

  bool interrupted() const { return interrupt_ != nullptr && interrupt_->signal() != 0; }

  const Console& console_;
  const Interrupt* const interrupt_;
  int code_ = 0;
};

}  // namespace split
