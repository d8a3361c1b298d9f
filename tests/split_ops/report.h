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
  std::string differs = {};  // where shapes or types do, or nothing could be computed
  void add(double got, double want, double rtol, double atol);
};

struct Report {
  struct Failure {
    std::string name, what;
    Worst worst;
  };
  // A case that was run: its worst error over its tolerance, in any layout.
  struct Case {
    std::string name, operation, expression;
    double worst = 0;
    bool failed = false;
  };
  size_t cases = 0, skipped = 0;
  std::vector<Failure> failed;
  std::vector<Case> all;

  // Adds a comparison to the last case.
  void add(const std::string& what, const Worst& worst);
  Json json() const;
  // Writes the JSON to `file` unless that is empty, and lines to stdout. Returns the exit code.
  int finish(const std::string& file) const;
  // A page of all cases on a device, as one file.
  void write_page(const std::string& file, const std::string& device) const;
};

// Text for a page, and a file of it.
std::string escaped(std::string_view text);
void write_text(const std::string& file, const std::string& text);

}  // namespace split::ops
