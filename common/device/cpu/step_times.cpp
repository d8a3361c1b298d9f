#include "device/cpu/step_times.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"

namespace split {

StepTimes::StepTimes() : on_(debug_level() >= 2) {}

void StepTimes::add(const Step& step, Clock::duration duration) {
  std::string what =
      step.op == Op::k_matmul ? cat("matmul ", step.inner, "x", step.columns)
      : step.op == Op::k_attention
          ? cat("attention ", step.attribute<size_t>(attributes::attention::heads), " heads")
      : step.op == Op::k_topk  ? cat("top ", step.columns / 2)
      : step.op == Op::k_group ? cat("group ", step.columns)
                               : cat(op_info(step.op).name, " ", step.columns);
  const auto same =
      std::find_if(sums_.begin(), sums_.end(), [&](const Sum& sum) { return sum.what == what; });
  Sum& sum = same == sums_.end() ? sums_.emplace_back(Sum{std::move(what), {}, 0}) : *same;
  sum.total += duration;
  ++sum.count;
}

void StepTimes::report(size_t rows) {
  if (!on_) return;
  Clock::duration total{};
  std::string line;
  for (const Sum& sum : sums_) {
    total += sum.total;
    line += cat("; ", sum.count, " ", sum.what, " ",
                std::chrono::duration_cast<std::chrono::microseconds>(sum.total).count());
  }
  log_info(cat("[cpu] ", rows, " rows: ",
               std::chrono::duration_cast<std::chrono::microseconds>(total).count(), " us", line));
  sums_.clear();
}

}  // namespace split
