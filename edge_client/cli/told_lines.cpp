#include "edge_client/cli/told_lines.h"

#include <utility>

#include "base/error.h"

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
  if (writing_ && console_.one_place) {
    held_ += line + "\n";
  } else {
    console_.err(line + "\n");
  }
}

void ToldLines::tell_beside(const std::string& line) {
  const std::lock_guard lock(mutex_);
  if (line == std::exchange(last_beside_, line)) return;
  if (!quiet_ && !console_.one_place) console_.err(line + "\n");
}

}  // namespace split::edge
