#include "scripts/link/line.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace split::link {
namespace {

constexpr size_t kPacket = 1448, kMostAtOnce = 64 << 10;
constexpr size_t kFlowHolds = 64 << 10, kLineHolds = 64 << 20;
constexpr size_t kLineStart = 80;  // as much of a text line as tells what it is

}  // namespace

// --- Line

size_t Line::piece() const {
  if (options_.bits_per_s == 0) return kMostAtOnce;
  return std::clamp(static_cast<size_t>(options_.bits_per_s / 8 / 1000), kPacket, kMostAtOnce);
}

Time Line::send(Time since, size_t bytes) {
  free_ = std::max(free_, since);
  if (options_.bits_per_s > 0) {
    const double seconds =
        8.0 * static_cast<double>(bytes) / static_cast<double>(options_.bits_per_s);
    free_ += std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  return free_ + options_.delay;
}

bool Line::has_room(size_t of_flow) const { return of_flow < kFlowHolds || held_ < kLineHolds; }

// --- EventEnds

bool EventEnds::end_line() {
  std::string_view line = line_;
  if (line.ends_with('\r')) line.remove_suffix(1);
  bool ends = false;
  if (line.empty()) {
    ends = data_;
    data_ = false;
  } else if (line.starts_with("HTTP/1.")) {
    stream_ = false;
  } else if (line.starts_with("data:")) {
    data_ = stream_;
  } else if (std::tolower(static_cast<unsigned char>(line[0])) == 'c') {
    std::string lower(line);
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (lower.starts_with("content-type:")) {
      stream_ = lower.find("text/event-stream") != std::string::npos;
    }
  }
  line_.clear();
  return ends;
}

size_t EventEnds::find(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] != '\n') {
      if (line_.size() < kLineStart) line_ += bytes[i];
    } else if (end_line()) {
      return i + 1;
    }
  }
  return std::string_view::npos;
}

// --- Flow

void Flow::offer(Time now) {
  if (offered_) return;
  offered_ = true;
  since_ = std::max(since_, now);
}

void Flow::end(Time now) {
  ended_ = true;
  last_ = std::max(last_, line_.send(std::max(since_, now), 0));
}

size_t Flow::room(Time now) const {
  if (!offered_ || ended_ || !line_.has_room(held_)) return 0;
  return now < std::max(since_, line_.free_at()) ? 0 : line_.piece();
}

void Flow::push(std::string_view bytes) {
  CHECK(!ended_ && !bytes.empty());
  const Time arrives = line_.send(since_, bytes.size());
  line_.hold(bytes.size());
  held_ += bytes.size();
  const auto gap = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(events_per_s_ > 0 ? 1 / events_per_s_ : 0));
  while (events_per_s_ > 0) {
    const size_t size = events_.find(bytes);
    if (size == bytes.npos) break;
    add(bytes.substr(0, size), std::max(arrives, next_event_));
    next_event_ = last_ + gap;
    bytes.remove_prefix(size);
  }
  if (!bytes.empty()) add(bytes, arrives);
}

void Flow::add(std::string_view bytes, Time arrives) {
  last_ = std::max(last_, arrives);
  pieces_.push_back({std::string(bytes), last_});
}

std::string_view Flow::arrived(Time now) const {
  if (pieces_.empty() || pieces_.front().arrives > now) return {};
  return std::string_view(pieces_.front().bytes).substr(taken_);
}

void Flow::take(Time now, size_t bytes) {
  CHECK(bytes <= arrived(now).size());
  // Bytes that were held back until now were not sent before.
  if (!line_.has_room(held_)) since_ = std::max(since_, now);
  line_.let_go(bytes);
  held_ -= bytes;
  taken_ += bytes;
  if (taken_ < pieces_.front().bytes.size()) return;
  pieces_.pop_front();
  taken_ = 0;
}

Time Flow::wake(Time now) const {
  Time at = kNever;
  if (offered_ && !ended_ && line_.has_room(held_)) at = std::max(since_, line_.free_at());
  if (pieces_.empty()) return ended_ && last_ > now ? std::min(at, last_) : at;
  return pieces_.front().arrives > now ? std::min(at, pieces_.front().arrives) : at;
}

}  // namespace split::link
