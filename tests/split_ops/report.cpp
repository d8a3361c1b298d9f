#include "tests/split_ops/report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>

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

void Report::add(const std::string& what, const Worst& worst) {
  Case& of = all.back();
  if (worst.tolerance > 0) of.worst = std::max(of.worst, worst.error / worst.tolerance);
  if (!worst.failed) return;
  of.failed = true;
  failed.push_back({of.name, what, worst});
}

Json Report::json() const {
  Json all = Json::array();
  for (const Failure& failure : failed) {
    // Beside a NaN or an infinite one an error is the largest there is, and nothing is allowed.
    const auto finite = [&](double value, double otherwise) {
      if (!failure.worst.differs.empty()) return Json(nullptr);
      return Json(std::isfinite(value) ? value : otherwise);
    };
    all.push_back(Json{{"case", cat(failure.name, failure.what.empty() ? "" : " ", failure.what)},
                       {"error", finite(failure.worst.error, std::numeric_limits<double>::max())},
                       {"tolerance", finite(failure.worst.tolerance, 0)}});
  }
  return Json{{"cases", cases}, {"skipped", skipped}, {"failed", std::move(all)}};
}

int Report::finish(const std::string& file) const {
  for (const Failure& failure : failed) {
    std::cout << failure.name << " " << failure.what << ": ";
    if (!failure.worst.differs.empty()) {
      std::cout << failure.worst.differs << "\n";
    } else {
      std::cout << "error " << failure.worst.error << ", allowed " << failure.worst.tolerance
                << "\n";
    }
  }
  std::cout << cases << " cases, " << skipped << " skipped, " << failed.size() << " failed\n";
  if (!file.empty()) {
    write_text(file, json().dump() + "\n");
  }
  return failed.empty() ? 0 : 1;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return out;
}

void write_text(const std::string& file, const std::string& text) {
  AtomicFile out(file);
  out.append(std::as_bytes(std::span(text)));
  out.commit();
}

void Report::write_page(const std::string& file, const std::string& device) const {
  std::string rows;
  size_t bad = 0;
  for (const Case& one : all) {
    bad += one.failed ? 1 : 0;
    char worst[32];
    std::snprintf(worst, sizeof worst, "%.3g", one.worst);
    rows += cat("<tr class=", one.failed ? "bad" : "good", "><td>", escaped(one.operation), "<td>",
                escaped(one.name), "<td><code>", escaped(one.expression), "</code><td>",
                one.failed ? "fails" : "agrees", "<td>", worst, "\n");
  }
  write_text(
      file,
      cat("<!doctype html><html lang=en><meta charset=utf-8>"
          "<meta name=viewport content=\"width=device-width\"><title>Operations on ",
          escaped(device),
          "</title><style>body{font:16px/1.4 system-ui;margin:1rem;max-width:70rem}"
          "table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.2rem .5rem;"
          "border-bottom:1px solid #ddd;overflow-wrap:anywhere}.bad{background:#fdd}"
          "</style><h1>Operations on ",
          escaped(device), "</h1><p>", all.size() - bad, " of ", all.size(),
          " cases agree with PyTorch, each with its gradients in five layouts. The last "
          "column is the worst error over its tolerance.<table><tr><th>operation<th>case"
          "<th>expression<th>verdict<th>error\n",
          rows, "</table></html>\n"));
}

}  // namespace split::ops
