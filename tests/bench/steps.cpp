#include "bench/steps.h"

#include <algorithm>

#include "text/sampler.h"

namespace split::bench {
namespace {

ShardOptions options_of(const Device& device, const Model& model, Profile profile,
                        std::optional<DType> kv, bool wide,
                        const std::optional<StageFormats>& formats, uint32_t keys) {
  ShardOptions options;
  options.wide = wide;
  if (device.is_gpu()) options.long_rows = kLongRows;
  const ModelConfig& config = model.config();
  options.profile = profile;
  options.formats = formats.value_or(profile_formats(profile));
  options.kv = kv;
  // The batch, a sequence for each context measured, and a prompt.
  const auto context = static_cast<uint64_t>(config.context);
  const uint64_t positions = kMostSequences * uint64_t{keys + kPageTokens} + 5 * context;
  options.kv_bytes = kv_bytes_for(model, {}, profile, positions / context + 1, kv);
  return options;
}

}  // namespace

Steps::Steps(Device& device, const Model& model, const WeightSource& weights, Profile profile,
             std::optional<DType> kv, bool wide, std::optional<StageFormats> formats, uint32_t keys)
    : config_(model.config()),
      keys_(std::min(keys, static_cast<uint32_t>(config_.context))),
      shard_(device, model, weights, options_of(device, model, profile, kv, wide, formats, keys_)),
      tokens_(random_tokens(config_, static_cast<size_t>(config_.context))) {}

uint32_t Steps::long_context() const {
  return std::min(1000u, static_cast<uint32_t>(config_.context) - 1);
}

double Steps::kv_bytes(uint32_t context) const {
  return static_cast<double>(shard_.page_bytes()) / kPageTokens * context;
}

// Made when first needed: a Steps is made in the time that its Shard takes.
float* Steps::results() {
  logits_.resize(kMostSequences * static_cast<size_t>(config_.vocab));
  return logits_.data();
}

double Steps::step(std::span<const ShardRows> parts) {
  float* const out = results();
  for (const ShardRows& part : parts) {
    CHECK(shard_.pages().reserve(part.sequence, part.rows.past + part.rows.count()));
  }
  const Point to = parts[0].rows.range.to;
  return timed([&] {
    shard_.forward(parts, out);
    const float* row = out;
    for (size_t i = 0; samples_ && i < parts.size(); ++i) {
      for (size_t wanted = parts[i].rows.wanted_count(); wanted > 0; --wanted) {
        choose(std::span(row, shard_.width(to)), to == Point::top());
        row += shard_.width(to);
      }
    }
  });
}

void Steps::choose(std::span<const float> row, bool top) {
  const SamplingOptions greedy{.temperature = 0};
  token_ = top ? sample_top(row, greedy, 0) : sample(row, {}, greedy, 0);
}

// The tokens that stand at these positions of every sequence.
SequenceRows Steps::rows(uint32_t past, uint32_t count, Phase phase, const Wanted& wanted) const {
  return {.past = past,
          .tokens = std::span(tokens_).subspan(past, count),
          .phase = phase,
          .wanted = wanted};
}

// Makes the sequence `length` positions long.
void Steps::feed(SequenceId id, uint32_t length) {
  while (shard_.pages().length(id) < length) {
    const uint32_t past = shard_.pages().length(id);
    const uint32_t count = std::min(length - past, shard_.long_rows());
    const ShardRows part{id, rows(past, count, Phase::kPrompt, Wanted::kNone)};
    step(std::span(&part, 1));
  }
}

SequenceId Steps::at_context(uint32_t context) {
  const auto [at, added] = by_context_.try_emplace(context);
  if (added) at->second = shard_.pages().open();
  feed(at->second, context - 1);
  return at->second;
}

double Steps::decode(uint32_t context) {
  const SequenceId id = at_context(context);
  const ShardRows part{id, rows(context - 1, 1, Phase::kGenerate)};
  const double seconds = step(std::span(&part, 1));
  shard_.pages().truncate(id, context - 1);
  return seconds;
}

double Steps::tail(uint32_t context, bool top) {
  const SequenceId id = at_context(context);
  CHECK(shard_.pages().reserve(id, context));
  const std::vector<float> hidden(shard_.width(0), 0.25f);
  const Point to = top ? Point::top() : Point::head();
  const ShardRows part{id,
                       {.range = {config_.layers / 2, to},
                        .past = context - 1,
                        .hidden = hidden,
                        .width = static_cast<uint32_t>(hidden.size()),
                        .phase = Phase::kGenerate}};
  float* const out = results();
  const double seconds = timed([&] {
    shard_.forward(std::span(&part, 1), out);
    choose(std::span(out, shard_.width(to)), top);
  });
  shard_.pages().truncate(id, context - 1);
  return seconds;
}

double Steps::prefill(uint32_t length) {
  const SequenceId id = shard_.pages().open();
  double seconds = 0;
  for (uint32_t past = 0; past < length;) {
    const uint32_t count = std::min(length - past, shard_.long_rows());
    const Wanted wanted = past + count == length ? Wanted::kLast : Wanted::kNone;
    const ShardRows part{id, rows(past, count, Phase::kPrompt, wanted)};
    seconds += step(std::span(&part, 1));
    past += count;
  }
  shard_.pages().close(id);
  return seconds;
}

double Steps::batch(uint32_t sequences, bool top) {
  CHECK(sequences <= kMostSequences);
  while (batch_.size() < sequences) {
    batch_.push_back(shard_.pages().open());
    feed(batch_.back(), keys_ - 1);
  }
  std::vector<ShardRows> parts;
  for (uint32_t i = 0; i < sequences; ++i) {
    parts.push_back({batch_[i],
                     {.range = {.to = top ? Point::top() : Point::head()},
                      .past = keys_ - 1,
                      .tokens = std::span(tokens_).subspan(i, 1),
                      .phase = Phase::kGenerate}});
  }
  const double seconds = step(parts);
  for (uint32_t i = 0; i < sequences; ++i) shard_.pages().truncate(batch_[i], keys_ - 1);
  return seconds;
}

}  // namespace split::bench
