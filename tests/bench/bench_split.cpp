// The area split: how many edges a cloud_server carries at a pace, with the same p99 of a step:
// where it runs all of the model, half of its blocks, and four depths mixed; and what it does about
// twice as many as it can carry, when their edges take layers. Edges replay recorded ids and
// compute nothing; "all" are the same steps with `to` = head. First: how many tokens a second it
// makes when a fixed number of edges ask again at once, and how long its device works for each.
#include <algorithm>
#include <map>
#include <optional>

#include "bench/support/bench.h"
#include "bench/support/cloud_process.h"
#include "bench/support/replayers.h"
#include "http/client.h"
#include "support/prometheus_text.h"

namespace split::bench {
namespace {

constexpr double kSettle = 0.5, kMeasure = 1.5;  // seconds
constexpr int kTries = 3;                        // a neighbour's burst is no lack of capacity
constexpr double kKeepsPace = 0.95;              // of the steps that are due
constexpr size_t kMostSessions = 1024;
// Rows that each of them keeps, also while it waits, as whole pages: memory is not to bound them.
constexpr uint64_t kRowsKept = 160;
constexpr double kBesideStep = 1.06;  // two counts of sessions so near to each other are one

using Places = std::map<std::string, std::vector<Point>>;

constexpr size_t kBusySessions = 64;
constexpr double kAtOnce = 1e3;  // tokens a second of each: as fast as the answers come

// The device's work, as the server counts it.
struct Work {
  double seconds, tokens;
};
Work device_work(const CloudProcess& server) {
  http::Client client(server.url());
  test::PrometheusReader reader(client.request("GET", "/metrics").body);
  const test::PrometheusText counted = reader.take();
  const auto both = [&](const char* name) {
    return counted.value(name, {{"phase", "decode"}}) + counted.value(name, {{"phase", "prefill"}});
  };
  return {both("split_forward_duration_seconds_sum"),
          counted.value("split_tokens_total", {{"phase", "decode"}})};
}

// Tokens a second, and the device's milliseconds for each, where edges ask again as soon as they
// have an answer. With one block the device has next to nothing to do: what bounds its tokens is
// HTTP.
void busy(Report& report, const RandomModel& model, Replay replay, const CloudProcess& server,
          Places places) {
  replay.rate = kAtOnce;
  places["block"] = {1};
  std::map<std::string, double> ms;
  for (const auto& [name, cuts] : places) {
    Replayers edges(model, replay);
    edges.run(kBusySessions, cuts);
    edges.measure(kSettle);
    const Work before = device_work(server);
    const Measured measured = edges.measure(kMeasure);
    const Work after = device_work(server);
    CHECK(measured.failed == 0);
    report.add(cat("busy_", name, "_rate"), static_cast<double>(measured.ms.size()) / kMeasure,
               "tokens/s");
    ms[name] = 1e3 * (after.seconds - before.seconds) / (after.tokens - before.tokens);
    report.add(cat("busy_", name, "_device"), ms[name], "ms/token");
  }
  report.add("busy_half", ms["all"] / ms["half"], "", 2.0);
  report.add("busy_mixed", ms["all"] / ms["mixed"], "", 1.9);
}

bool carries(Replayers& edges, size_t sessions, const std::vector<Point>& cuts, double slo_ms) {
  edges.run(sessions, cuts);
  edges.measure(kSettle);
  for (int i = 0; i < kTries; ++i) {
    const Measured measured = edges.measure(kMeasure);
    CHECK(measured.failed == 0);
    if (measured.p99() <= slo_ms && measured.rate >= kKeepsPace) return true;
  }
  return false;
}

// The most sessions whose steps' p99 is within the bound.
size_t capacity(Replayers& edges, const std::vector<Point>& cuts, double slo_ms) {
  size_t good = 0, bad = 0;
  for (size_t n = 8; bad == 0 && n <= kMostSessions; n *= 2) {
    (carries(edges, n, cuts, slo_ms) ? good : bad) = n;
  }
  while (bad > 0 && static_cast<double>(bad) > kBesideStep * static_cast<double>(good) &&
         bad > good + 1) {
    const size_t middle = (good + bad) / 2;
    (carries(edges, middle, cuts, slo_ms) ? good : bad) = middle;
  }
  edges.run(0, cuts);
  return good;
}

// Twice as many as it carries, from half as many on; then a quarter.
void overload(Report& report, Replayers& edges, size_t all, int layers, double slo_ms) {
  const std::vector<Point> cuts{Point::head()};
  const int can = layers / 4;
  edges.run(2 * all, cuts);  // opened
  edges.run(all / 2, cuts, can);
  edges.measure(8);
  const auto start = Clock::now();
  edges.run(2 * all, cuts, can);
  double recovered = 0, worst = 0;
  int over = 0;
  while (seconds_since(start) < 30) {
    const Measured second = edges.measure(1);
    worst = std::max(worst, second.p99());
    if (second.p99() > slo_ms) recovered = seconds_since(start), ++over;
  }
  const Measured after = edges.measure(3);
  report.add("load_recovery_s", recovered, "s", 10);
  report.add("load_seconds_over", over, "s", 10);
  report.add("load_worst_p99_ms", worst, "ms", slo_ms);
  report.add("load_after_p99_ms", after.p99(), "ms", slo_ms);
  report.add("load_after_pace", after.rate, "", 1);
  const auto calm = Clock::now();
  edges.run(std::max<size_t>(1, all / 4), cuts, can);
  double back = 0;
  while (seconds_since(calm) < 60 && seconds_since(calm) < back + 8) {
    edges.measure(0.5);
    if (edges.moved() > 0) back = seconds_since(calm);
  }
  report.add("load_back_s", back, "s", 30);
  const size_t moves = edges.most_moves(std::chrono::seconds(10));
  report.add("load_moves_in_10_s", static_cast<double>(moves), "", 1);
}

int run(int argc, char** argv) {
  float slo_ms = 100, pace = 10;
  bool busy_alone = false;
  const auto options = parse_options(
      argc, argv,
      "bench_split: sessions that a cloud_server carries, by the depth of their steps\n", "cpu",
      [&](Flags& flags) {
        flags.real("slo-ms", "X", "what the p99 of a step may be (100)", &slo_ms, 1, 1e6);
        flags.real("pace", "X", "tokens a second of each session (10)", &pace, 0.1f, 1e3);
        flags.toggle("busy", "stop behind the rows of edges that ask again at once", &busy_alone);
      });
  if (!options) return 0;
  const RandomModel model(options->size, DType::kF16);
  const ScratchDir scratch;
  model.write(scratch.path());
  const std::string threads = cat(options->threads);
  const auto& config = model.config();
  const uint64_t row_bytes = uint64_t{2} * 2 * static_cast<uint64_t>(config.layers) *
                             static_cast<uint64_t>(config.channels);  // keys and values, 16 bits
  const CloudProcess server({"--model",
                             cat(options->size, "=", scratch.path()),
                             "--device",
                             options->device,
                             "--threads",
                             threads,
                             "--profile",
                             "q8_0",
                             "--formats",
                             "q8_0",
                             "--port",
                             "0",
                             "--kv-budget",
                             cat(kMostSessions * kRowsKept * row_bytes),
                             "--max-inflight",
                             "2048",
                             "--max-connections-per-address",
                             "4096",
                             "--slo-ms",
                             cat(slo_ms),
                             "--blob-cache",
                             scratch.path() + "/blobs"});
  Report report(*options, "split", cat(options->device, " (", threads, " threads)"));
  const int layers = model.config().layers;
  const Replay replay{.url = server.url(), .model = options->size, .layers = layers, .rate = pace};
  const Places places{
      {"all", {Point::head()}},
      {"blocks", {layers}},  // all, without the head and its answers of a vocabulary's size
      {"half", {std::max(1, layers / 2)}},
      {"mixed",
       {std::max(1, layers / 4), std::max(1, layers / 2), std::max(1, 3 * layers / 4), layers}}};
  busy(report, model, replay, server, places);
  if (busy_alone) return report.finish(), 0;
  std::optional<Replayers> edges(std::in_place, model, replay);
  std::map<std::string, std::vector<double>> carried;
  for (unsigned i = 0; i < options->runs; ++i) {
    for (const auto& [name, cuts] : places) {
      carried[name].push_back(static_cast<double>(capacity(*edges, cuts, slo_ms)));
    }
  }
  const double all = median(carried["all"]);
  for (const auto& [name, sessions] : carried) {
    report.add("sessions_" + name, median(sessions), "");
  }
  report.add("capacity_half", median(carried["half"]) / all, "", 2.0);
  report.add("capacity_mixed", median(carried["mixed"]) / all, "", 1.9);
  edges.emplace(model, replay);  // at cuts of their own again, which would be moves
  overload(report, *edges, static_cast<size_t>(all), layers, slo_ms);
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
