// Counters, gauges and histograms in Prometheus' text format, once for both programs. Names follow
// prometheus.io/docs/practices/naming: a prefix, base units, _total for what only grows. Labels
// never identify a client or a request: no session, no key, no text.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace split::serve {

// Any number of threads.
class Counter {
 public:
  void add(uint64_t by = 1) { value_.fetch_add(by, std::memory_order_relaxed); }
  uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> value_{0};
};

// Any number of threads.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds) : bounds_(std::move(bounds)) {
    counts_.resize(bounds_.size() + 1);
  }
  void observe(double value);

 private:
  friend class Metrics;
  mutable std::mutex mutex_;
  const std::vector<double> bounds_;  // upper bounds, ascending
  std::vector<uint64_t> counts_;      // the last one: above all bounds
  double sum_ = 0;
};

// Seconds from 100 us to 10 s.
std::vector<double> latency_bounds();

// Any number of threads. The returned references live as long as it does.
class Metrics {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;

  // Returns the series of this name and these labels, made at the first call, which gives `help`
  // and the kind.
  Counter& counter(std::string_view name, std::string_view help, const Labels& labels = {});
  Histogram& histogram(std::string_view name, std::string_view help, const Labels& labels = {},
                       const std::vector<double>& bounds = latency_bounds());
  // Adds a gauge, read by any thread whenever the text is made.
  void gauge(std::string_view name, std::string_view help, std::function<double()> value,
             const Labels& labels = {});
  void counted(std::string_view name, std::string_view help, std::function<double()> value,
               const Labels& labels = {});

  // Adds a series that is always 1, for its labels.
  void info(std::string_view name, std::string_view help,
            std::function<std::vector<Labels>()> series);

  // Returns all series, in the text format 0.0.4, families in the order of their names.
  std::string text() const;

 private:
  struct Series {
    std::unique_ptr<Counter> counter;
    std::unique_ptr<Histogram> histogram;
    std::function<double()> value;
  };
  struct Family {
    std::string help, kind;
    std::map<Labels, Series> series;
    std::function<std::vector<Labels>()> info;
  };
  // Called with the lock held.
  Family& family(std::string_view name, std::string_view help, std::string_view kind);
  Series& find(std::string_view name, std::string_view help, std::string_view kind,
               const Labels& labels);

  mutable std::mutex mutex_;
  std::map<std::string, Family, std::less<>> families_;
};

// Adds process_*: CPU seconds, memory, descriptors, threads, start time; from /proc.
void add_process_metrics(Metrics& metrics);

}  // namespace split::serve
