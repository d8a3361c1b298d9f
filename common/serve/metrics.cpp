#include "serve/metrics.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <memory>

#include "base/bytes.h"
#include "base/error.h"
#include "base/system/process.h"

namespace split::serve {
namespace {

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

// Escapes a label's text in quotes, or a HELP line, which keeps quotes.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && quotes)
      out += "\\\"";
    else
      out += c;
  }
  return out;
}

std::string labels_text(const Metrics::Labels& labels, std::string_view bound = {}) {
  std::string out;
  const auto add = [&](std::string_view name, std::string_view value) {
    out += cat(out.empty() ? "{" : ",", name, "=\"", escaped(value, true), "\"");
  };
  for (const auto& [name, value] : labels) add(name, value);
  if (!bound.empty()) add("le", bound);
  return out.empty() ? out : out + "}";
}

}  // namespace

void Histogram::observe(double value) {
  const auto at = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<size_t>(at)];
  sum_ += value;
}

std::vector<double> latency_bounds() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
          0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
}

Metrics::Family& Metrics::family(std::string_view name, std::string_view help,
                                 std::string_view kind) {
  auto at = families_.find(name);
  if (at == families_.end()) {
    Family family{std::string(help), std::string(kind), {}, {}};
    at = families_.emplace(std::string(name), std::move(family)).first;
  }
  CHECK(at->second.kind == kind);
  return at->second;
}

Metrics::Series& Metrics::find(std::string_view name, std::string_view help, std::string_view kind,
                               const Labels& labels) {
  return family(name, help, kind).series[labels];
}

Counter& Metrics::counter(std::string_view name, std::string_view help, const Labels& labels) {
  const std::lock_guard lock(mutex_);
  Series& series = find(name, help, "counter", labels);
  if (!series.counter) series.counter = std::make_unique<Counter>();
  return *series.counter;
}

Histogram& Metrics::histogram(std::string_view name, std::string_view help, const Labels& labels,
                              const std::vector<double>& bounds) {
  const std::lock_guard lock(mutex_);
  Series& series = find(name, help, "histogram", labels);
  if (!series.histogram) series.histogram = std::make_unique<Histogram>(bounds);
  return *series.histogram;
}

void Metrics::gauge(std::string_view name, std::string_view help, std::function<double()> value,
                    const Labels& labels) {
  const std::lock_guard lock(mutex_);
  find(name, help, "gauge", labels).value = std::move(value);
}

void Metrics::counted(std::string_view name, std::string_view help, std::function<double()> value,
                      const Labels& labels) {
  const std::lock_guard lock(mutex_);
  find(name, help, "counter", labels).value = std::move(value);
}

void Metrics::info(std::string_view name, std::string_view help,
                   std::function<std::vector<Labels>()> series) {
  const std::lock_guard lock(mutex_);
  family(name, help, "gauge").info = std::move(series);
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    out += cat("# HELP ", name, " ", escaped(family.help, false), "\n# TYPE ", name, " ",
               family.kind, "\n");
    const auto line = [&out, &name = name](std::string_view suffix, const std::string& labels,
                                           const std::string& value) {
      out += cat(name, suffix, labels, " ", value, "\n");
    };
    if (family.info) {
      for (const Labels& labels : family.info()) line("", labels_text(labels), "1");
    }
    for (const auto& [labels, series] : family.series) {
      if (series.counter) line("", labels_text(labels), cat(series.counter->value()));
      if (series.value) line("", labels_text(labels), number(series.value()));
      if (!series.histogram) continue;
      const Histogram& histogram = *series.histogram;
      const std::lock_guard histogram_lock(histogram.mutex_);
      uint64_t count = 0;
      for (size_t i = 0; i < histogram.counts_.size(); ++i) {
        count += histogram.counts_[i];
        const double bound = i < histogram.bounds_.size() ? histogram.bounds_[i] : HUGE_VAL;
        line("_bucket", labels_text(labels, number(bound)), cat(count));
      }
      line("_sum", labels_text(labels), number(histogram.sum_));
      line("_count", labels_text(labels), cat(count));
    }
  }
  return out;
}

void add_process_metrics(Metrics& metrics) {
  metrics.counted("process_cpu_seconds_total", "CPU time of this process, user and system.",
                  process_cpu_seconds);
  metrics.gauge("process_resident_memory_bytes", "Memory of this process in RAM.",
                process_resident_bytes);
  metrics.gauge("process_virtual_memory_bytes", "Address space of this process.",
                process_virtual_bytes);
  metrics.gauge("process_threads", "Threads of this process.", process_threads);
  metrics.gauge("process_open_fds", "Open file descriptors.", process_open_files);
  metrics.gauge("process_max_fds", "Most file descriptors.", process_most_files);
  metrics.gauge("process_start_time_seconds", "When this process began, since 1970.",
                [start = process_start()] { return start; });
}

}  // namespace split::serve
