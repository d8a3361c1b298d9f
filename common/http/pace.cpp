#include "http/pace.h"

namespace split::http {
namespace {

constexpr std::string_view kData = "data";

double seconds(std::chrono::milliseconds time) { return static_cast<double>(time.count()) / 1e3; }

}  // namespace

bool SsePulse::feed(std::string_view bytes) {
  bool ended = false;
  for (const char c : bytes) {
    if (c != '\n' && c != '\r') {
      if (start_.size() <= kData.size()) start_ += c;
      continue;
    }
    // A comment ends with its line, an event with an empty line.
    ended |= start_.starts_with(':') || (start_.empty() && has_data_);
    has_data_ = !start_.empty() && (has_data_ || start_ == kData || start_ == "data:");
    start_.clear();
  }
  return ended;
}

Pace::Pace(const Client::Options& options, bool events, Time now)
    : rate_(options.min_rate),
      span_(options.min_rate_span),
      event_timeout_(options.event_timeout),
      due_(Time::max()) {
  if (!events) return;
  pulse_.emplace();
  due_ = now + event_timeout_;
}

bool Pace::take(Time now, std::string_view bytes) {
  if (now >= due_) return false;
  if (pulse_) {
    if (pulse_->feed(bytes)) due_ = now + event_timeout_;
    return true;
  }
  if (rate_ == 0 || bytes.empty()) return true;
  if (due_ == Time::max() || bytes.size() >= wanted_) {
    due_ = now + span_;
    wanted_ = static_cast<uint64_t>(static_cast<double>(rate_) * seconds(span_));
  } else {
    wanted_ -= bytes.size();
  }
  return true;
}

std::string Pace::missed() const {
  return pulse_ ? cat("no event came for ", seconds(event_timeout_), " s")
                : cat("the reply is slower than ", rate_, " bytes/s over ", seconds(span_), " s");
}

}  // namespace split::http
