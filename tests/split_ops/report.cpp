#include "tests/split_ops/report.h"

#include <cmath>
#include <iostream>

#include "base/file.h"

namespace split::ops {

void Worst::add(double got, double want, double rtol, double atol) {
  if ((std::isnan(got) && std::isnan(want)) || got == want) return;
  const double off = std::abs(got - want), allowed = atol + rtol * std::abs(want);
  const bool good = std::isfinite(got) && std::isfinite(want) && off <= allowed;
  // The first that fails, or the largest error.
  if (failed || (good && off <= error)) return;
  failed = !good;
  error = off;
  tolerance = allowed;
}

Json Report::json() const {
  Json all = Json::array();
  for (const Failure& failure : failed) {
    const auto finite = [](double value) {
      return std::isfinite(value) ? Json(value) : Json("inf");
    };
    all.push_back(Json{{"case", cat(failure.name, failure.what.empty() ? "" : " ", failure.what)},
                       {"error", finite(failure.worst.error)},
                       {"tolerance", finite(failure.worst.tolerance)}});
  }
  return Json{{"cases", cases}, {"skipped", skipped}, {"failed", std::move(all)}};
}

int Report::finish(const std::string& file) const {
  for (const Failure& failure : failed) {
    std::cout << failure.name << " " << failure.what << ": error " << failure.worst.error
              << ", allowed " << failure.worst.tolerance << "\n";
  }
  std::cout << cases << " cases, " << skipped << " skipped, " << failed.size() << " failed\n";
  if (!file.empty()) {
    const std::string text = json().dump() + "\n";
    AtomicFile out(file);
    out.append(std::as_bytes(std::span(text)));
    out.commit();
  }
  return failed.empty() ? 0 : 1;
}

}  // namespace split::ops
