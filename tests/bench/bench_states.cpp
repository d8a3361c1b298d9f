// The area states: what blocks that keep a state cost, on a CPU. A snapshot of all of them beside
// the prompt that leaves it; and a token of one such block behind short and long texts.
#include "bench/steps.h"
#include "run/batcher.h"

namespace split::bench {
namespace {

// Rows of sequences, from hidden states where the range begins with blocks.
class Rows {
 public:
  Rows(Device& device, const MeasuredModel& model, const StageRange& range)
      : model_(model), range_(range), shard_(device, model.model(), model.weights(), options()) {}

  Shard& shard() { return shard_; }
  // Appends rows in steps of at most `most`; returns the seconds of all.
  double append(SequenceId sequence, uint32_t count, uint32_t most, Phase phase) {
    KvPages& pages = shard_.pages();
    double seconds = 0;
    for (uint32_t done = 0; done < count;) {
      const uint32_t past = pages.length(sequence), rows = std::min(most, count - done);
      const std::vector<int32_t> tokens = random_tokens(model_.config(), rows);
      const auto channels = static_cast<uint32_t>(model_.config().channels);
      const std::vector<float> hidden(size_t{rows} * channels, 0.5f);
      ShardRows part{sequence, {.range = range_, .past = past, .phase = phase}};
      part.rows.wanted = Wanted::kNone;
      if (range_.from.is_tokens()) {
        part.rows.tokens = tokens;
      } else {
        part.rows.hidden = hidden;
        part.rows.width = channels;
      }
      CHECK(pages.reserve(sequence, past + rows, range_));
      seconds += timed([&] { shard_.forward({&part, 1}, nullptr); });
      done += rows;
    }
    return seconds;
  }

 private:
  ShardOptions options() const {
    ShardOptions options;
    options.range = range_;
    options.profile = Profile::kF16;
    options.kv_bytes = kv_bytes_for(model_.model(), range_, options.profile, 4);
    return options;
  }
  const MeasuredModel& model_;
  const StageRange range_;
  Shard shard_;
};

int run(int argc, char** argv) {
  const auto options = parse_options(
      argc, argv, "bench_states: snapshots of states, and blocks that keep them\n", "cpu");
  if (!options) return 0;
  const std::string size = options->size == "demo" ? "qwen3.5-0.8b" : options->size;
  constexpr uint32_t kPrompt = 2048, kShort = 1024, kLong = 65536, kTokens = 64;
  const RandomModel model(size, DType::kF16, 1, static_cast<int>(kLong + 2 * kTokens));
  const auto device = make_device({options->device, options->threads});
  Report report(*options, cat("states ", size), device->name());
  {
    Rows one(*device, model, {1, 2});
    KvPages& pages = one.shard().pages();
    const OneSequence small(pages), large(pages);
    one.append(small.id, kShort, 512, Phase::kPrompt);
    one.append(large.id, kLong, 512, Phase::kPrompt);
    std::vector<double> few, many;
    for (uint32_t i = 0; i < kTokens; ++i) {  // in turn
      few.push_back(one.append(small.id, 1, 1, Phase::kGenerate) * 1000);
      many.push_back(one.append(large.id, 1, 1, Phase::kGenerate) * 1000);
    }
    report.add(cat("a block's token behind ", kShort), median(few), "ms");
    report.add(cat("a block's token behind ", kLong), median(many), "ms", median(few));
  }
  const StageRange blocks{.to = model.config().layers};
  Rows whole(*device, model, blocks);
  const OneSequence text(whole.shard().pages());
  const double prompt = whole.append(text.id, kPrompt, 512, Phase::kPrompt) * 1000;
  report.add(cat("a prompt of ", kPrompt), prompt, "ms");
  std::vector<double> leaves;
  const uint32_t rooms = 2 * whole.shard().pages().states();
  for (unsigned i = 0; i < rooms + options->runs; ++i) {
    leaves.push_back(
        timed([&] { CHECK(whole.shard().leave(text.id, blocks, kPrompt).made != 0); }) * 1000);
  }
  // Memory that was never touched comes from the system page by page.
  const auto end = leaves.begin() + options->runs;
  report.add("a snapshot in new memory", median({leaves.begin(), end}), "ms", prompt / 100);
  report.add("a snapshot", median({leaves.end() - options->runs, leaves.end()}), "ms",
             prompt / 100);
  report.finish();
  return 0;
}

}  // namespace
}  // namespace split::bench

int main(int argc, char** argv) { return split::bench::run_main(split::bench::run, argc, argv); }
