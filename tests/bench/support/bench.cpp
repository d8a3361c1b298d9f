#include "bench/support/bench.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/support/random_model.h"

namespace split::bench {

double timed(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return seconds_since(start);
}

double quantile(std::vector<double> values, double q) {
  CHECK(!values.empty());
  std::sort(values.begin(), values.end());
  const auto at = static_cast<size_t>(q * static_cast<double>(values.size()));
  return values[std::min(at, values.size() - 1)];
}

double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

double minimum(const std::vector<double>& values) {
  CHECK(!values.empty());
  return *std::min_element(values.begin(), values.end());
}

std::optional<Options> parse_options(int argc, char** argv, std::string_view summary,
                                     std::string_view device,
                                     const std::function<void(Flags&)>& more) {
  Options options;
  options.device = device;
  Flags flags{std::string(summary)};
  flags.group("Measuring");
  flags.choice("size", random_model_sizes(), "shapes of the model (demo)", &options.size);
  flags.text("json", "FILE", "write the rows there: [{name, value, unit, limit, ratio}, ...]",
             &options.json);
  if (!device.empty()) {
    flags.text("device", "NAME", cat("cpu, vulkan or vulkan:N (", device, ")"), &options.device);
  }
  flags.number("threads", "N", "of the CPU device (one per processor)", &options.threads, 0u,
               1024u);
  flags.number("runs", "N", "alternating repetitions (5)", &options.runs, 1u, 1000u);
  if (more) more(flags);
  if (flags.parse(argc, argv) != Flags::Asked::kNothing) {
    std::cout << flags.help();
    return std::nullopt;
  }
  if (options.threads == 0) options.threads = std::max(1u, std::thread::hardware_concurrency());
  return options;
}

namespace {

std::string number(double value) {
  char text[32];
  const double size = std::abs(value);
  const int digits = size >= 1000 ? 0 : size >= 10 ? 1 : size >= 0.1 ? 3 : -1;
  if (digits < 0 && value != 0) {
    std::snprintf(text, sizeof text, "%.2e", value);
  } else {
    std::snprintf(text, sizeof text, "%.*f", std::max(digits, 0), value);
  }
  return text;
}

}  // namespace

std::string machine_name() {
  std::string cpu = "unknown CPU";
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0) continue;
    cpu = line.substr(std::min(line.size(), line.find(':') + 2));
    break;
  }
  return cat(cpu, ", ", std::thread::hardware_concurrency(), " processors");
}

Report::Report(const Options& options, std::string area, std::string device) : file_(options.json) {
  std::printf("%s, %s on %s\n%s\n%-44s %12s %-9s %12s %7s\n", area.c_str(), options.size.c_str(),
              device.c_str(), machine_name().c_str(), "name", "value", "unit", "limit", "ratio");
  std::fflush(stdout);
}

void Report::add(std::string name, double value, std::string unit, std::optional<double> limit) {
  if (limit && !(*limit > 0)) limit.reset();
  std::printf("%-44s %12s %-9s %12s %7s\n", name.c_str(), number(value).c_str(), unit.c_str(),
              limit ? number(*limit).c_str() : "", limit ? number(value / *limit).c_str() : "");
  std::fflush(stdout);
  rows_.push_back({std::move(name), value, std::move(unit), limit});
}

void Report::note(std::string_view text) const {
  std::printf("# %.*s\n", static_cast<int>(text.size()), text.data());
  std::fflush(stdout);
}

void Report::finish() const {
  if (file_.empty()) return;
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Row& row : rows_) {
    nlohmann::ordered_json entry = {{"name", row.name}, {"value", row.value}, {"unit", row.unit}};
    entry["limit"] = row.limit ? nlohmann::ordered_json(*row.limit) : nullptr;
    entry["ratio"] = row.limit ? nlohmann::ordered_json(row.value / *row.limit) : nullptr;
    list.push_back(std::move(entry));
  }
  std::ofstream out(file_);
  out << list.dump(1) << "\n";
  if (!out.flush()) throw Error(ErrorKind::kIo, cat("[bench] ", file_, ": cannot be written"));
}

double read_bandwidth_pass(unsigned threads) {
  constexpr size_t kWords = size_t{64} << 20;
  constexpr size_t kChains = 32;
  static const std::vector<uint64_t> memory(kWords, 1);
  std::vector<uint64_t> sums(threads);
  const size_t share = kWords / threads / kChains * kChains;
  const double seconds = timed([&] {
    std::vector<std::thread> workers;
    for (unsigned t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        uint64_t chains[kChains] = {};
        const uint64_t* words = memory.data() + share * t;
        for (size_t i = 0; i < share; i += kChains) {
          for (size_t c = 0; c < kChains; ++c) chains[c] += words[i + c];
        }
        for (const uint64_t chain : chains) sums[t] += chain;
      });
    }
    for (std::thread& worker : workers) worker.join();
  });
  for (const uint64_t sum : sums) CHECK(sum == share);
  return static_cast<double>(share * threads * sizeof(uint64_t)) / seconds;
}

int run_main(int (*body)(int, char**), int argc, char** argv) {
  try {
    return body(argc, argv);
  } catch (const Error& error) {
    std::cerr << error.what() << "\n";
    return error.kind() == ErrorKind::kInput ? 2 : 1;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}

}  // namespace split::bench
