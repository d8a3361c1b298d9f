#include "program/checklist.h"

#include <algorithm>
#include <array>

#include "base/plain_words.h"
#include "program/exit_codes.h"
#include "program/terminal.h"

namespace split {

void Checklist::line(std::string_view name, Verdict verdict, std::string_view text) const {
  constexpr std::array<std::string_view, 3> kWords = {"   ", "ok ", "BAD"};
  const std::string_view word = kWords.at(static_cast<size_t>(verdict));
  std::string padded(name);
  padded.resize(11, ' ');
  const Mark mark = verdict == Verdict::kBad ? Mark::kRed : Mark::kGreen;
  console_.out(wrapped(cat(padded, marked(console_.out_colors(), mark, word), "  ", text, "\n"),
                       console_.columns));
}

bool Checklist::check(std::string_view name, std::initializer_list<Need> needs,
                      const std::function<std::string()>& look) {
  if (interrupted()) return false;
  const auto missing = std::ranges::find(needs, false, &Need::there);
  if (missing != needs.end()) {
    line(name, Verdict::kUntried, cat("not tried without ", missing->what));
    return false;
  }
  try {
    line(name, Verdict::kOk, look());
    return true;
  } catch (const Error& error) {
    if (interrupted()) return false;
    line(name, Verdict::kBad, plain_words(error.what()));
    if (code_ == 0) code_ = exit_code(error.kind());
    return false;
  }
}

void Checklist::advise(std::string_view what) {
  if (interrupted()) return;
  line("to install", what.empty() ? Verdict::kOk : Verdict::kUntried,
       what.empty() ? "nothing" : what);
}

int Checklist::finish() {
  if (!interrupted()) console_.out(code_ == 0 ? "All is well.\n" : "Not all is well: see BAD.\n");
  return code_;
}

}  // namespace split
