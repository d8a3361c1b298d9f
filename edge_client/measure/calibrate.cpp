#include "edge_client/measure/calibrate.h"
#include "base/resources/clock.h"
#include "base/resources/fibres.h"

#include <algorithm>
#include <array>
#include <vector>

namespace split::edge {
namespace {

constexpr size_t kMostRuns = 15;
constexpr size_t kFewestRuns = 5;
constexpr double kMostMs = 20;  // measured for each figure, after its first runs
constexpr uint32_t kFewRows = 8, kPromptRows = 64;
constexpr uint32_t kPast = 128;            // rows before a typical generated one
constexpr uint64_t kMostOther = 32 << 20;  // bytes: more than caches hold

// Appends zeros in pieces, and lets others run between them.
template <typename Byte>
void grow(std::vector<Byte>& bytes, uint64_t size) {
  constexpr size_t kPiece = 1 << 20;
  bytes.reserve(size);
  while (bytes.size() < size) {
    bytes.resize(std::min<size_t>(size, bytes.size() + kPiece));
    fibres::yield();
  }
}

// Weights of zeros, which all share their memory.
class Zeros {
 public:
  Zeros(const Model& model, DType stored) : model_(model), stored_(stored) {}

  TensorView view(const std::string& name) {
    const Dims& dims = model_.weight(name).dims;
    const uint64_t bytes = tensor_bytes(stored_, dims).value();
    grow(bytes_, bytes);
    return {stored_, dims, std::span(bytes_).first(bytes)};
  }
  // Call before the first view, so that none moves.
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

// The rest of the model, whose weights evict a step's weights from the caches before the next step.
class Others {
 public:
  explicit Others(uint64_t bytes) { grow(bytes_, std::min(bytes, kMostOther)); }
  void read() {
    constexpr uint64_t kPiece = 4 << 20;
    for (uint64_t i = 0; i < bytes_.size(); i += 64) {
      seen_ = seen_ + bytes_[i];
      if (i % kPiece == 0) fibres::yield();
    }
  }

 private:
  std::vector<unsigned char> bytes_;
  volatile unsigned seen_ = 0;
};

// Steps of a sequence that is cut back to `past` rows each time.
class Steps {
 public:
  Steps(Shard& shard, Others& others, Phase phase, uint32_t rows, uint32_t past)
      : shard_(shard),
        others_(others),
        sequence_(shard.pages().open()),
        passing_(shard.pages().open()),
        phase_(phase),
        rows_(rows) {
    if (past == 0) return;
    const size_t width = shard.width(blocks().from);
    const std::vector<float> before(past * width);
    std::vector<float> out(shard.width(blocks().to));
    forward(sequence_, {.range = blocks(), .hidden = before, .width = static_cast<uint32_t>(width)},
            out);
    past_ = past;
  }
  ~Steps() {
    shard_.pages().close(sequence_);
    shard_.pages().close(passing_);
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  double ms(const StageRange& range, Wanted wanted = Wanted::kLast) {
    return in_turn<1>({range}, wanted)[0];
  }
  // Returns how much longer the first range takes than the second.
  double ms_more(const StageRange& longer, const StageRange& shorter) {
    const auto both = in_turn<2>({longer, shorter}, Wanted::kLast);
    return std::max(0.0, both[0] - both[1]);
  }

 private:
  // Returns the lower quartile of some runs of each range, in ms: slower runs waited for something.
  // The ranges alternate, so that a machine that becomes busy slows all. The first runs, with cold
  // caches, do not count.
  template <size_t kRanges>
  std::array<double, kRanges> in_turn(const std::array<StageRange, kRanges>& ranges,
                                      Wanted wanted) {
    std::array<std::vector<double>, kRanges> all;
    double spent = 0;
    while (all[0].size() < kFewestRuns ||
           (all[0].size() < kMostRuns && spent < kMostMs * kRanges)) {
      for (size_t i = 0; i < kRanges; ++i) {
        out_.resize(shard_.width(ranges[i].to) * (wanted == Wanted::kAll ? rows_ : 1));
        others_.read();
        fibres::yield();
        const auto start = Clock::now();
        run(ranges[i], wanted);
        all[i].push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
        spent += all[i].back();
      }
    }
    std::array<double, kRanges> quartiles;
    for (size_t i = 0; i < kRanges; ++i) {
      all[i].erase(all[i].begin());
      const auto at = all[i].begin() + static_cast<ptrdiff_t>(all[i].size() / 4);
      std::ranges::nth_element(all[i], at);
      quartiles[i] = *at;
    }
    return quartiles;
  }
  StageRange blocks() const {
    return {shard_.options().range.from, shard_.model().config().layers};
  }
  void run(const StageRange& range, Wanted wanted) {
    const bool keeps = range.from < Point(shard_.model().config().layers);  // has keys and values
    const SequenceId sequence = keeps ? sequence_ : passing_;
    const uint32_t past = keeps ? past_ : 0;
    const size_t width = shard_.width(range.from);
    hidden_.resize(std::max(hidden_.size(), rows_ * width));
    shard_.pages().cut_back(sequence, past);
    forward(sequence,
            {.range = range,
             .past = past,
             .hidden = std::span(hidden_).first(rows_ * width),
             .width = static_cast<uint32_t>(width),
             .phase = phase_,
             .wanted = wanted},
            out_);
  }
  void forward(SequenceId sequence, const SequenceRows& rows, std::vector<float>& out) {
    CHECK(shard_.pages().reserve(sequence, rows.past + rows.count(), rows.range));
    const ShardRows part{sequence, rows};
    shard_.forward({&part, 1}, out.data());
  }

  Shard& shard_;
  Others& others_;
  const SequenceId sequence_, passing_;
  const Phase phase_;
  std::vector<float> hidden_;
  const uint32_t rows_;
  uint32_t past_ = 0;
  std::vector<float> out_;
};

// Blocks of one kind, which take about equal times: those that keep a state, and the others.
struct BlockKind {
  int last = 0, count = 0;
};
std::vector<BlockKind> kinds_of(const Model& model) {
  BlockKind kinds[2];
  for (int block = 0; block < model.config().layers; ++block) {
    BlockKind& kind = kinds[model.state(block).keeps() ? 1 : 0];
    kind.last = block;
    ++kind.count;
  }
  std::vector<BlockKind> found(std::begin(kinds), std::end(kinds));
  std::erase_if(found, [](const BlockKind& kind) { return kind.count == 0; });
  return found;
}

// Returns the approximate bytes of a loaded block.
uint64_t weight_bytes(const Model& model, DType stored, const StageFormats& formats, int block) {
  const Stage& stage = model.stages()[static_cast<size_t>(block) + 1];
  const DType format = formats.of(stage.name).value_or(stored);
  uint64_t bytes = 0;
  for (const std::string& blob : stage.blobs) {
    for (const WeightDecl& decl : model.blob(blob).weights) {
      const Dims& dims = model.weight(decl.name).dims;
      bytes += tensor_bytes(decl.product != Product::kNone ? format : DType::kF32, dims).value();
    }
  }
  return bytes;
}

}  // namespace

Speed calibrate(Device& device, const Model& model, DType stored, const StageFormats& formats,
                Profile profile, const std::function<void(const Shard&)>& look, Measured measured) {
  const int layers = model.config().layers;
  const std::vector<BlockKind> kinds = kinds_of(model);
  int first = std::max(0, layers - 1);
  for (const BlockKind& kind : kinds) first = std::min(first, kind.last);
  ShardOptions options;
  options.range = {first, Point::head()};
  options.profile = profile;
  options.formats = formats;
  const auto context = static_cast<uint32_t>(model.config().context);
  // Several for a short context, for all the rows below.
  const bool several = context < 2 * kPast || kinds.size() > 1;
  options.kv_bytes = kv_bytes_for(model, options.range, profile, several ? 8 : 2);
  if (is_quantised(stored)) {
    options.formats = StageFormats::parse(format_name(stored));
    stored = DType::kF16;
  }
  Zeros zeros(model, stored);
  zeros.reserve(std::span(model.stages()).subspan(options.range.begin(layers)));
  Shard shard(
      device, model, [&](const std::string& name) { return zeros.view(name); }, options);

  if (look) look(shard);

  // As steps of an answer end.
  const Point end = shard.host_copy_is_slow() ? Point::top() : Point::head();
  const StageRange head{layers, end};
  const bool all = measured == Measured::kAll;
  const uint32_t past = all ? std::min(kPast, context / 2) : 0;
  const uint32_t few_rows = std::min(kFewRows, context - past),
                 prompt_rows = std::min(kPromptRows, context);
  uint64_t bytes = 0;
  for (const BlockKind& kind : kinds) {
    bytes += weight_bytes(model, stored, formats, kind.last) * static_cast<uint64_t>(kind.count);
  }
  Others others(shard.host_copy_is_slow() ? 0 : bytes);  // a GPU has caches of its own
  // The mean of all blocks.
  const auto of_block = [&](Steps& steps) {
    double ms = 0;
    for (const auto& [last, count] : kinds) {
      ms += count * steps.ms_more({last, end}, {last + 1, end}) / layers;
    }
    return ms;
  };
  Steps one(shard, others, Phase::kGenerate, 1, past);
  Speed speed;
  speed.head_ms = one.ms(head);
  speed.block_ms = of_block(one);
  if (!all) return speed;
  Steps few(shard, others, Phase::kGenerate, few_rows, past),
      prompt(shard, others, Phase::kPrompt, prompt_rows, 0);
  speed.head_row_ms =
      std::max(0.0, few.ms(head, Wanted::kAll) - speed.head_ms) / std::max(1u, few_rows - 1);
  speed.block_row_ms = std::max(0.0, of_block(few) - speed.block_ms) / std::max(1u, few_rows - 1);
  speed.prompt_row_ms = of_block(prompt) / prompt_rows;
  return speed;
}

}  // namespace split::edge
