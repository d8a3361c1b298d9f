// Findings of a run of goldens, as JSON and as lines.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace split::ops {

// The worst element of a comparison: its error beside what is allowed there.
struct Worst {
  double error = 0, tolerance = 0;
  bool failed = false;
  void add(double got, double want, double rtol, double atol);
};

struct Report {
  struct Failure {
    std::string name, what;
    Worst worst;
  };
  size_t cases = 0, skipped = 0;
  std::vector<Failure> failed;

  Json json() const;
  // Writes the JSON to `file` unless that is empty, and lines to stdout. Returns the exit code.
  int finish(const std::string& file) const;
};

}  // namespace split::ops
