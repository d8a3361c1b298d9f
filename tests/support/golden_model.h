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

inline ShardOptions options_for(const Model& model, int first, int last) {
  ShardOptions options;
  options.embed = first == 0;
  options.first = first;
  options.last = last;
  options.kv_bytes = kv_bytes_for(model, first, last, Profile::kF32, 40);
  return options;
}

}  // namespace split::test
