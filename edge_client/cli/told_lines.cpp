#include "edge_client/cli/told_lines.h"

#include <utility>

#include "base/error.h"
#include "base/plain_words.h"
#include "program/terminal.h"

namespace split::edge {

void ToldLines::begin_text() {
  const std::lock_guard lock(mutex_);
  writing_ = true;
}

void ToldLines::end_text() {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  over_ = true;
  if (!held_.empty()) console_.err(cat("\n", std::exchange(held_, {})));
}

void ToldLines::tell(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (quiet_ || over_) return;
  const std::string told = marked(console_.err_colors(), Mark::kDim, line) + "\n";
  if (teller_) {
    teller_(told);
  } else if (writing_ && console_.one_place) {
    held_ += told;
  } else {
    console_.err(told);
  }
}

void ToldLines::through(std::function<void(const std::string&)> teller) {
  const std::lock_guard lock(mutex_);
  teller_ = std::move(teller);
}

void ToldLines::tell_beside(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (line == std::exchange(last_beside_, line)) return;
  if (!quiet_ && !console_.one_place) console_.err(line + "\n");
}

std::string told_receipt(const std::string& receipt, const Console& console) {
  constexpr size_t kNames = 12;  // columns
  if (!console.err_colors()) return receipt;
  std::string out;
  for (size_t at = 0; at < receipt.size();) {
    const size_t end = std::min(receipt.find('\n', at), receipt.size());
    const std::string line = receipt.substr(at, end - at), name = line.substr(0, kNames),
                      rest = line.substr(name.size());
    const bool verdict = name.find("verdict") != name.npos;
    out += cat(marked(true, Mark::kDim, name), marked(verdict, Mark::kBold, rest), "\n");
    at = end + 1;
  }
  return out;
}

std::string told_error(std::string_view what, const Console& console) {
  return cat(marked(console.err_colors(), Mark::kRed, "edge_client:"), " ", plain_words(what),
             "\n");
}

}  // namespace split::edge
