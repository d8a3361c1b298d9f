#include "text/jinja/meter.h"

#include "base/resources/memory_budget.h"
#include "base/system/thread_time.h"

namespace split::jinja {
namespace {

constexpr size_t kBytesAStep = 64;
constexpr int64_t kStepsBetweenLooks = 1024;  // less than a millisecond
constexpr size_t kPaidAtOnce = 64 << 10;      // bytes

// Counts this thread alone: a busy machine makes no run too long.
double seconds_of_work() { return std::chrono::duration<double>(thread_time()).count(); }

[[noreturn]] void end_run(const std::string& what) {
  throw Error(ErrorKind::kInput, cat("the template ", what));
}

}  // namespace

Meter::Meter(const JinjaCaller& caller) : caller_(caller), start_(seconds_of_work()) {}

void Meter::steps(size_t count) {
  steps_ += static_cast<int64_t>(std::min<size_t>(count, 1 << 30));
  if (steps_ > JinjaLimits::kSteps) end_run(cat("takes more than ", JinjaLimits::kSteps, " steps"));
  if (steps_ >= next_look_) look();
}

void Meter::bytes(size_t count) {
  owed_ += count;
  if (owed_ < kBytesAStep) return;
  const size_t due = owed_ / kBytesAStep;
  owed_ %= kBytesAStep;
  steps(due);
}

void Meter::look() {
  next_look_ = steps_ + kStepsBetweenLooks;
  if (seconds_of_work() - start_ > JinjaLimits::kSeconds) {
    end_run(cat("takes more than ", JinjaLimits::kSeconds, " s"));
  }
  if (caller_.waits && !caller_.waits()) {
    throw Error(ErrorKind::kBusy, "[template] nobody waits for it any more");
  }
}

void Meter::hold(size_t bytes) {
  if (held_ + bytes > paid_ && caller_.memory != nullptr) {
    const size_t due = std::max(held_ + bytes - paid_, kPaidAtOnce);
    caller_.memory->take(due);
    paid_ += due;
  }
  held_ += bytes;
}

void TextMade::add(std::string_view more) {
  const size_t size = text_.size() + more.size();
  if (size > JinjaLimits::kOutput) {
    end_run(cat("makes more than ", JinjaLimits::kOutput, " bytes of text"));
  }
  meter_.bytes(more.size());
  if (size > text_.capacity()) {
    const size_t wanted = std::max(size, 2 * text_.capacity());
    meter_.hold(wanted);  // beside the old one
    text_.reserve(wanted);
    meter_.let_go(std::exchange(held_, wanted));
  }
  text_ += more;
}

}  // namespace split::jinja
