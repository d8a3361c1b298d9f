// Whole-model steps on one device, timed: everything from tokens to logits, or to the next tokens,
// in this process. Shared by the areas cpu and gpu.
#pragma once

#include <map>

#include "bench/support/bench.h"
#include "bench/support/random_model.h"

namespace split::bench {

inline constexpr uint32_t kBatchContext = 128;
inline constexpr uint32_t kMostSequences = 32;

// One thread at a time. The device, the model and its weights outlive it.
class Steps {
 public:
  // `wide`: generated rows on matrix units too. `formats`: of the weights, where they are not those
  // that the profile makes. `keys`: that each sequence of a batch sees.
  Steps(Device& device, const Model& model, const WeightSource& weights, Profile profile,
        std::optional<DType> kv = {}, bool wide = false, std::optional<StageFormats> formats = {},
        uint32_t keys = kBatchContext);
  Steps(Device& device, const MeasuredModel& model, Profile profile, std::optional<DType> kv = {},
        bool wide = false, std::optional<StageFormats> formats = {})
      : Steps(device, model.model(), model.weights(), profile, kv, wide, formats) {}

  // From now on a step ends with the greedy token of each row of logits, not with the logits.
  void sample_too() { samples_ = true; }

  Shard& shard() { return shard_; }
  const std::vector<float>& logits() const { return logits_; }  // of the last step

  // Seconds of a step of one token at position `context` - 1, so that it sees `context` keys.
  double decode(uint32_t context);
  // Seconds from a hidden state in the middle of the model, as an edge gets it, to the greedy
  // token: from the `top` or from all logits.
  double tail(uint32_t context, bool top);
  // Seconds of a prompt of `length` tokens with the last one's logits.
  double prefill(uint32_t length);
  // Seconds of one token of each of `sequences` sequences, `keys` keys each: to the `top`
  // logits of each, as sampling asks a device for that is far, or to all.
  double batch(uint32_t sequences, bool top = false);

  // The longest context up to 1,000 that the model has room for.
  uint32_t long_context() const;
  // Keys and values that a step of one token reads at `context`.
  double kv_bytes(uint32_t context) const;

 private:
  void feed(SequenceId id, uint32_t length);
  SequenceId at_context(uint32_t context);
  float* results();
  SequenceRows rows(uint32_t past, uint32_t count, Phase phase,
                    const Wanted& wanted = Wanted::kLast) const;
  double step(std::span<const ShardRows> parts);
  void choose(std::span<const float> row, bool top);

  const ModelConfig& config_;
  const uint32_t keys_;
  Shard shard_;
  std::vector<int32_t> tokens_;
  std::map<uint32_t, SequenceId> by_context_;
  std::vector<SequenceId> batch_;
  std::vector<float> logits_;
  bool samples_ = false;
  int32_t token_ = 0;  // sampled last
};

}  // namespace split::bench
