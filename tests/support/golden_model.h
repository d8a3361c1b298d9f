// A model of the tests with what PyTorch computes for it (tests/golden/README.md), and shards over
// it.
#pragma once

#include <memory>
#include <string>

#include "golden_values.h"
#include "io/checkpoint.h"
#include "run/batcher.h"

namespace split::test {

// A checkpoint, its model, and what PyTorch says about it.
struct Golden : GoldenValues {
  explicit Golden(const std::string& name)
      : GoldenValues(name),
        checkpoint(model_dir(name)),
        model(make_model(checkpoint.config_json())) {}

  WeightSource weights() const { return weights_of(checkpoint, *model); }

  Checkpoint checkpoint;
  std::unique_ptr<Model> model;
};

inline ShardOptions options_for(const Model& model, const StageRange& range = {}) {
  ShardOptions options;
  options.range = range;
  options.kv_bytes = kv_bytes_for(model, range, Profile::kF32, 40);
  return options;
}

// Appends rows to a sequence at its present length; returns the wanted results.
inline std::vector<float> append(Batcher& batcher, SequenceId sequence, SequenceRows rows) {
  rows.past = batcher.pages().length(sequence);
  std::vector<float> out(rows.wanted_count() * batcher.shard().width(rows.range.to));
  Job job{sequence, std::move(rows), out.data()};
  batcher.run(job);
  return out;
}

}  // namespace split::test
