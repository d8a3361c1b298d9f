// The area http: what a session's step costs over loopback HTTP beside the same step in process.
// Both run in alternation on one shard: one generated token through the first half of the blocks.
#include "bench/support/loopback.h"

namespace split::bench {
namespace {

constexpr double kGoalUs = 300;  // added to a step, p50
constexpr uint32_t kContext = 128;
constexpr int kSteps = 80;  // of a repetition

int run(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv, "bench_http: a step over loopback HTTP beside the same step in process\n", "");
  if (!options) return 0;
  const RandomModel model(options->size, DType::kF16);
  Loopback loopback(model, *options);
  Report report(*options, "http", loopback.model().device().name());
  edge::Remote remote(loopback.url(), std::chrono::milliseconds(30000));
  const auto columns = static_cast<uint32_t>(model.config().channels);
  const int cut = std::max(1, model.config().layers / 2);
  const std::string session(32, 'a');
  const edge::AskedModel asked{.id = options->size, .channels = columns};
  edge::Traffic traffic;
  remote.ask({edge::Send::kOpen, session, {.range = {.to = cut}}, &traffic}, asked);

  Batcher& batcher = loopback.model().batcher();
  KvPages& pages = batcher.shard().pages();
  const SequenceId sequence = pages.open();
  std::vector<int32_t> tokens = random_tokens(model.config(), kContext);
  std::vector<float> hidden(columns);
  const auto in_process = [&](uint32_t past, std::span<const int32_t> from, Phase phase) {
    Job job{sequence,
            {.range = {.to = cut}, .past = past, .tokens = from, .phase = phase},
            hidden.data()};
    return timed([&] {
      pages.truncate(sequence, past);
      batcher.run(job);
    });
  };
  std::vector<float> answer;
  const auto over_http = [&](uint32_t past, std::span<const int32_t> from, Phase phase) {
    const SequenceRows rows{.past = past, .tokens = from, .phase = phase};
    return timed([&] { answer = remote.ask({edge::Send::kStep, session, rows, &traffic}, asked); });
  };
  in_process(0, tokens, Phase::kPrompt);
  over_http(0, tokens, Phase::kPrompt);

  std::vector<double> inside, outside, wire;
  traffic = {};
  const std::span<const int32_t> last = std::span(tokens).last(1);
  for (unsigned i = 0; i < options->runs * kSteps; ++i) {
    inside.push_back(1e6 * in_process(kContext - 1, last, Phase::kGenerate));
    const double before = traffic.wire_ms;
    outside.push_back(1e6 * over_http(kContext - 1, last, Phase::kGenerate));
    wire.push_back(1e3 * (traffic.wire_ms - before));
  }
  if (answer != hidden) {
    throw Error(ErrorKind::kRemote, "[bench] the step over HTTP gave another hidden state");
  }
  const double steps = static_cast<double>(outside.size());
  report.add("step_overhead_p50_us", median(outside) - median(inside), "us", kGoalUs);
  report.add("step_overhead_p99_us", quantile(outside, 0.99) - quantile(inside, 0.99), "us");
  report.add("step_p50_us", median(outside), "us");
  report.add("step_p99_us", quantile(outside, 0.99), "us");
  report.add("in_process_p50_us", median(inside), "us");
  report.add("in_process_p99_us", quantile(inside, 0.99), "us");
  // The time of each step that the server did not compute or queue: less noisy than a difference of
  // medians where steps take milliseconds or others use the machine.
  report.add("step_wire_p50_us", median(wire), "us", kGoalUs);
  report.add("step_wire_p99_us", quantile(wire, 0.99), "us");
  report.add("bytes_up", static_cast<double>(traffic.bytes_up) / steps, "bytes");
  report.add("bytes_down", static_cast<double>(traffic.bytes_down) / steps, "bytes");
  report.finish();
  remote.ask({edge::Send::kClose, session}, asked);
  pages.close(sequence);
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
