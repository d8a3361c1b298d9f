// The area cloud: one cloud_server under load, seen from outside. Idle connections; one session's
// step beside the same step in this process; 16, 32 and 200 sessions at once beside bare batched
// steps; a server killed and started again under 32 sessions. Each session's bits are checked.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <map>
#include <thread>

#include "bench/support/bench.h"
#include "bench/support/cloud_process.h"
#include "bench/support/sessions_load.h"

namespace split::bench {
namespace {

constexpr size_t kIdle = 4000;
constexpr uint64_t kKvBudget = 1ull << 30, kSlack = 128ull << 20;
constexpr int kKills = 3;
constexpr double kEfficiency = 0.85;
// The overloaded server's threads, and the requests that may wait for one (a fourth as many).
constexpr size_t kThreads = 32, kCapacity = kThreads + kThreads / 4, kOverloadSteps = 40;

// The steps without a server: one row of each of some sequences, in one run of a shard.
class BareSteps {
 public:
  BareSteps(const RandomModel& model, unsigned threads, int cut, size_t context)
      : device_(make_cpu_device(threads)),
        shard_(*device_, model.model(), model.weights(), options_of(model, cut)),
        cut_(cut),
        context_(static_cast<uint32_t>(context)),
        tokens_(random_tokens(model.config(), context)) {}

  // Seconds of a step of `sequences` rows.
  double step(size_t sequences) {
    while (ids_.size() < sequences) {
      ids_.push_back(shard_.pages().open());
      forward(Phase::kPrompt, {&ids_.back(), 1}, context_ - 1);
    }
    const double seconds =
        timed([&] { forward(Phase::kGenerate, std::span(ids_).first(sequences), 1); });
    for (size_t i = 0; i < sequences; ++i) shard_.pages().truncate(ids_[i], context_ - 1);
    return seconds;
  }

 private:
  static ShardOptions options_of(const RandomModel& model, int cut) {
    ShardOptions options;
    options.range.to = cut;
    options.profile = Profile::kF16;
    options.kv_bytes = kv_bytes_for(model.model(), options.range, Profile::kF16, 200);
    return options;
  }
  void forward(Phase phase, std::span<const SequenceId> ids, uint32_t rows) {
    std::vector<ShardRows> parts;
    for (const SequenceId id : ids) {
      const uint32_t past = shard_.pages().length(id);
      CHECK(shard_.pages().reserve(id, past + rows));
      parts.push_back({id,
                       {.range = {.to = cut_},
                        .past = past,
                        .tokens = std::span(tokens_).subspan(past, rows),
                        .phase = phase}});
    }
    out_.resize(ids.size() * shard_.width(cut_));
    shard_.forward(parts, out_.data());
  }

  std::unique_ptr<Device> device_;
  Shard shard_;
  const int cut_;
  const uint32_t context_;
  const std::vector<int32_t> tokens_;
  std::vector<SequenceId> ids_;
  std::vector<float> out_;
};

void allow_many_files() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);  // inherited by the server, too
}

// A connection that was used once and is kept alive; none when it cannot be had.
Fd used_connection(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string_view request = "GET /livez HTTP/1.1\r\nHost: x\r\n\r\n";
  char answer[1024];
  const bool good = fd &&
                    ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0 &&
                    ::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0 &&
                    ::recv(fd.get(), answer, sizeof answer, 0) > 0 &&
                    std::string_view(answer).starts_with("HTTP/1.1 200");
  return good ? std::move(fd) : Fd();
}

void measure_idle(Report& report, const CloudProcess& server) {
  std::vector<Fd> clients;
  while (clients.size() < kIdle) {
    Fd fd = used_connection(server.port());
    if (!fd) {
      report.note(cat("after ", clients.size(), " connections: ", errno_text(errno)));
      break;
    }
    clients.push_back(std::move(fd));
  }
  const size_t open = clients.size();
  std::this_thread::sleep_for(std::chrono::seconds(3));  // threads that linger are gone
  const double cpu = server.cpu_seconds();
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(5));
  const double percent = 100 * (server.cpu_seconds() - cpu) / seconds_since(start);
  report.add("idle_connections", static_cast<double>(open), "", kIdle);
  report.add("idle_threads", static_cast<double>(server.threads()), "", 16);
  report.add("idle_cpu_percent", percent, "%");
}

// A thread per load would notice: the largest resident size while `work` runs.
uint64_t most_resident(const CloudProcess& server, const std::function<void()>& work) {
  std::atomic<bool> done{false};
  uint64_t most = 0;
  std::thread watcher([&] {
    while (!done) {
      most = std::max(most, server.resident_bytes());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  });
  work();
  done = true;
  watcher.join();
  return most;
}

// Three times the requests that a server takes at once, from clients that come back 20 ms after a
// refusal, beside as many as it takes and one alone; then all but one stop.
void measure_overload(Report& report, SessionsLoad& sessions, const std::vector<double>& single) {
  const LoadResult full = sessions.run(kCapacity);
  LoadResult over;
  std::atomic<bool> ended{false};
  std::thread edges([&] {
    over = sessions.run(3 * kCapacity);
    ended = true;
  });
  while (!ended && sessions.stepped() < 3 * kCapacity * kOverloadSteps) std::this_thread::yield();
  sessions.stop();
  const double seconds = sessions.seconds_until_quick(2 * median(single));
  edges.join();
  report.add("overload_refused", static_cast<double>(over.refused), "");
  report.add("overload_failed", static_cast<double>(full.failed + over.failed), "");
  report.add("overload_p99_us", quantile(over.step_us, 0.99), "us");
  report.add("overload_p99_ratio", quantile(over.step_us, 0.99) / quantile(full.step_us, 0.99), "",
             2);
  report.add("overload_p99_over_single", quantile(over.step_us, 0.99) / quantile(single, 0.99), "");
  report.add("overload_recovery_ms", 1e3 * seconds, "ms", 1000);
}

int run(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv, "bench_cloud: a cloud_server with many connections and sessions\n", "");
  if (!options) return 0;
  allow_many_files();
  const RandomModel model(options->size, DType::kF16);
  const ScratchDir scratch;
  model.write(scratch.path());
  const std::string threads = cat(options->threads);
  const auto flags = [&](int port) {
    return std::vector<std::string>{"--model",
                                    cat(options->size, "=", scratch.path()),
                                    "--device",
                                    "cpu",
                                    "--threads",
                                    threads,
                                    "--profile",
                                    "f16",
                                    "--formats",
                                    "f16",
                                    "--port",
                                    cat(port),
                                    "--kv-budget",
                                    cat(kKvBudget),
                                    "--max-connections-per-address",
                                    cat(2 * kIdle),
                                    "--blob-cache",
                                    scratch.path() + "/blobs"};
  };
  auto server = std::make_unique<CloudProcess>(flags(0));
  Report report(*options, "cloud", cat("cpu (", threads, " threads)"));

  Load load;
  load.url = server->url();
  load.model = options->size;
  load.channels = static_cast<uint32_t>(model.config().channels);
  load.cut = std::max(1, model.config().layers / 2);
  SessionsLoad sessions(model, load);
  BareSteps bare(model, options->threads, load.cut, load.prompt + load.steps / 2);

  measure_idle(report, *server);

  std::vector<double> overhead, single, wire;
  std::map<size_t, std::vector<double>> bare_step, served;
  std::map<size_t, LoadResult> last;
  size_t failed = 0;
  for (unsigned i = 0; i < options->runs; ++i) {
    std::vector<double> alone;
    for (int k = 0; k < 64; ++k) alone.push_back(1e6 * bare.step(1));
    const LoadResult one = sessions.run(1);
    overhead.push_back(median(one.step_us) - median(alone));
    single.insert(single.end(), one.step_us.begin(), one.step_us.end());
    wire.insert(wire.end(), one.wire_us.begin(), one.wire_us.end());
    failed += one.failed;
    for (const size_t n : {size_t{16}, size_t{32}}) {
      for (int k = 0; k < 20; ++k) bare_step[n].push_back(bare.step(n));
      last[n] = sessions.run(n);
      served[n].push_back(last[n].tokens_per_second());
      failed += last[n].failed;
    }
  }
  report.add("step_overhead_p50_us", median(overhead), "us", 150);
  report.add("step_wire_p50_us", median(wire), "us", 150);
  report.add("step_p50_us", median(single), "us");
  report.add("step_p99_us", quantile(single, 0.99), "us");
  for (const size_t n : {size_t{16}, size_t{32}}) {
    const double bound = static_cast<double>(n) / median(bare_step[n]);
    report.add(cat("sessions_", n, "_tokens_per_second"), median(served[n]), "tokens/s", bound);
    report.add(cat("batch_efficiency_", n), median(served[n]) / bound, "", kEfficiency);
  }
  report.add("step_32_p99_over_bare",
             quantile(last[32].step_us, 0.99) / 1e6 / median(bare_step[32]), "", 2);

  LoadResult many;
  const uint64_t resident = most_resident(*server, [&] { many = sessions.run(200); });
  failed += many.failed;
  report.add("sessions_200_tokens_per_second", many.tokens_per_second(), "tokens/s");
  report.add("sessions_200_wire_p99_us", quantile(many.wire_us, 0.99), "us", 10000);
  const double bound = model.total_bytes() + static_cast<double>(kKvBudget + kSlack);
  report.add("rss_bytes", static_cast<double>(resident), "bytes", bound);
  report.add("rss_over_bound_bytes", std::max(0.0, static_cast<double>(resident) - bound), "bytes");
  report.add("sessions_failed", static_cast<double>(failed), "");

  load.retry_for = std::chrono::seconds(60);
  SessionsLoad patient(model, load);
  const int port = server->port();
  LoadResult faulty;
  std::thread edges([&] { faulty = patient.run(32); });
  for (int k = 0; k < kKills; ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server->kill();
    server = std::make_unique<CloudProcess>(flags(port));
  }
  edges.join();
  report.add("faults_tried", static_cast<double>(faulty.replays), "");
  report.add("faults_lost", static_cast<double>(faulty.failed), "");

  server->kill();
  std::vector<std::string> few = flags(port);
  few.insert(few.end(), {"--max-inflight", cat(kThreads)});
  server = std::make_unique<CloudProcess>(few);
  measure_overload(report, patient, single);
  report.finish();
  return failed + faulty.failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
