// Helpers that the benchmarks share: flags, clocks, medians over alternating runs, the machine's
// name and its read bandwidth, and a table of rows {"name","value","unit","limit","ratio"} that is
// printed and, with --json, written. Slow is never an error: a program fails only when something
// did not work.
//
// limit: what the machine's own figures, measured in the same run, would allow, or else the goal
// that the project has set itself. ratio: value / limit, always.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "program/flags.h"
#include "tensor/shape.h"

namespace split::bench {

using Clock = std::chrono::steady_clock;
inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}
// Seconds that `work` takes.
double timed(const std::function<void()>& work);

// Takes values in any order; not empty.
double median(std::vector<double> values);
double quantile(std::vector<double> values, double q);
double minimum(const std::vector<double>& values);

struct Options {
  std::string size = "demo";  // random_model.h
  std::string json;           // file to write
  std::string device;         // "" unless the program takes --device
  unsigned threads = 0;       // of the CPU device; 0 was made the number of processors
  unsigned runs = 5;          // alternating repetitions
};

// Reads the arguments; nothing when --help was asked for and printed. `device` is the default, and
// empty for a program that runs on the CPU only; `more` adds a program's own flags.
std::optional<Options> parse_options(int argc, char** argv, std::string_view summary,
                                     std::string_view device,
                                     const std::function<void(Flags&)>& more = {});

// Prints its rows as they come; the file is written by finish().
class Report {
 public:
  // `subject`: "area gpt2 on DEVICE".
  Report(const Options& options, std::string area, std::string device);

  void add(std::string name, double value, std::string unit, std::optional<double> limit = {});
  // A line of text among the rows, not in the file.
  void note(std::string_view text) const;
  void finish() const;  // throws Error(kIo)

 private:
  struct Row {
    std::string name;
    double value;
    std::string unit;
    std::optional<double> limit;
  };
  std::string file_;
  std::vector<Row> rows_;
};

// "Intel(R) Xeon(R) ..., 2 processors".
std::string machine_name();

// Bytes a second that `threads` threads read together from memory: one pass over 512 MiB, which are
// kept for the next.
double read_bandwidth_pass(unsigned threads);

// Calls body(argc, argv) and makes errors one line: 2 for a usage error, 1 for any other.
int run_main(int (*body)(int, char**), int argc, char** argv);

}  // namespace split::bench
