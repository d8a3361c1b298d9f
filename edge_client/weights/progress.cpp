#include "edge_client/weights/progress.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/figures.h"

namespace split::edge {

Progress::Progress(ProgressTo to, uint64_t total)
    : to_(std::move(to)), total_(total), start_(Clock::now()) {
  if (to_.say && to_.terminal && total_ > 0) draw(false);
}

Progress::~Progress() {
  if (open_line_) to_.say("\n");
}

void Progress::add(uint64_t bytes) {
  done_ = std::min(done_ + bytes, total_);
  if (!to_.say || total_ == 0) return;
  if (to_.terminal) {
    if (Clock::now() - drawn_ >= std::chrono::milliseconds(100)) draw(false);
    return;
  }
  const int tenths =
      static_cast<int>(static_cast<double>(done_) / static_cast<double>(total_) * 10);
  if (tenths <= tenths_) return;
  tenths_ = tenths;
  to_.say(cat("download: ", tenths * 10, " % of ", human_bytes(total_), "\n"));
}

void Progress::finish() {
  if (to_.say && to_.terminal && total_ > 0) draw(true);
}

void Progress::draw(bool last) {
  drawn_ = Clock::now();
  const double seconds = std::chrono::duration<double>(drawn_ - start_).count();
  const double part = static_cast<double>(done_) / static_cast<double>(total_);
  constexpr int kWidth = 24;
  const int full = static_cast<int>(part * kWidth);
  std::string line = cat("\rdownload [", std::string(static_cast<size_t>(full), '#'),
                         std::string(static_cast<size_t>(kWidth - full), '.'), "] ",
                         human_bytes(done_), " of ", human_bytes(total_));
  if (seconds > 0 && done_ > 0) {
    const double rate = static_cast<double>(done_) / seconds;
    line += cat(", ", human_bytes(static_cast<uint64_t>(rate)), "/s");
    line += last ? cat(", ", fixed(seconds, 1), " s")
                 : cat(", ", fixed(static_cast<double>(total_ - done_) / rate, 0), " s left");
  }
  open_line_ = !last;
  to_.say(line + "\x1b[K" + (last ? "\n" : ""));
}

}  // namespace split::edge
