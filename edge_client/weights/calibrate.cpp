#include "edge_client/weights/calibrate.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace split::edge {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMostRuns = 15;
constexpr std::chrono::milliseconds kMostTime{30};  // of one figure, but for its first two runs
constexpr uint32_t kFewRows = 8, kPromptRows = 64;

// Weights of zeros, all in the same memory.
class Zeros {
 public:
  Zeros(const Model& model, DType stored) : model_(model), stored_(stored) {}

  TensorView view(const std::string& name) {
    const Dims& dims = model_.weight(name).dims;
    const uint64_t bytes = tensor_bytes(stored_, dims).value();
    if (bytes > bytes_.size()) bytes_.resize(bytes);
    return {stored_, dims, std::span(bytes_).first(bytes)};
  }
  // Before the first view, so that none of them moves.
  void reserve(std::span<const Stage> stages) {
    for (const Stage& stage : stages) {
      for (const std::string& blob : stage.blobs) {
        for (const WeightDecl& decl : model_.blob(blob).weights) view(decl.name);
      }
    }
  }

 private:
  const Model& model_;
  const DType stored_;
  std::vector<std::byte> bytes_;
};

// Steps of a sequence that begins anew each time.
class Steps {
 public:
  Steps(Shard& shard, Phase phase, uint32_t rows)
      : shard_(shard),
        sequence_(shard.pages().open()),
        channels_(static_cast<uint32_t>(shard.model().config().channels)),
        phase_(phase),
        hidden_(size_t{rows} * channels_),
        rows_(rows) {
    CHECK(shard.pages().reserve(sequence_, rows));
  }
  ~Steps() { shard_.pages().close(sequence_); }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  // The median of some runs, in ms; the first one, which finds nothing ready, does not count.
  double ms(const StageRange& range) {
    out_.resize(shard_.width(range.to));
    std::vector<double> all;
    const auto begun = Clock::now();
    while (all.size() < 3 || (all.size() < kMostRuns && Clock::now() - begun < kMostTime)) {
      const auto start = Clock::now();
      run(range);
      all.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    }
    all.erase(all.begin());
    std::ranges::nth_element(all, all.begin() + static_cast<ptrdiff_t>(all.size() / 2));
    return all[all.size() / 2];
  }

 private:
  void run(const StageRange& range) {
    shard_.pages().truncate(sequence_, 0);
    CHECK(shard_.pages().reserve(sequence_, rows_));
    const ShardRows part{sequence_,
                         {.range = range, .hidden = hidden_, .width = channels_, .phase = phase_}};
    shard_.forward({&part, 1}, out_.data());
  }

  Shard& shard_;
  const SequenceId sequence_;
  const uint32_t channels_;
  const Phase phase_;
  const std::vector<float> hidden_;
  const uint32_t rows_;
  std::vector<float> out_;
};

}  // namespace

Speed calibrate(Device& device, const Model& model, DType stored, const StageFormats& formats,
                Profile profile) {
  const int layers = model.config().layers;
  ShardOptions options;
  options.range = {std::max(0, layers - 1), Point::head()};
  options.profile = profile;
  options.formats = formats;
  options.kv_bytes = kv_bytes_for(model, options.range, profile, 2);
  if (is_quantised(stored)) {
    options.formats = StageFormats::parse(format_name(stored));
    stored = DType::kF16;
  }
  Zeros zeros(model, stored);
  zeros.reserve(std::span(model.stages()).subspan(options.range.begin(layers)));
  Shard shard(
      device, model, [&](const std::string& name) { return zeros.view(name); }, options);

  // As an answer's steps end.
  const Point end = shard.host_copy_is_slow() ? Point::top() : Point::head();
  const StageRange block_and_head{options.range.from, end}, head{layers, end};
  const auto context = static_cast<uint32_t>(model.config().context);
  const uint32_t few_rows = std::min(kFewRows, context),
                 prompt_rows = std::min(kPromptRows, context);
  Steps one(shard, Phase::kGenerate, 1), few(shard, Phase::kGenerate, few_rows),
      prompt(shard, Phase::kPrompt, prompt_rows);
  Speed speed;
  speed.head_ms = one.ms(head);
  const auto of_block = [&](Steps& steps) {
    return layers == 0 ? 0 : std::max(0.0, steps.ms(block_and_head) - steps.ms(head));
  };
  speed.block_ms = of_block(one);
  speed.block_row_ms = std::max(0.0, of_block(few) - speed.block_ms) / std::max(1u, few_rows - 1);
  speed.prompt_row_ms = of_block(prompt) / prompt_rows;
  return speed;
}

}  // namespace split::edge
