// A model of the tests with what PyTorch computes for it (tests/golden/README.md), and shards over
// it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "golden_values.h"
#include "io/checkpoint.h"
#include "run/batcher.h"

namespace split::test {

inline split::Json golden_json(const std::string& name, const char* file) {
  return parse_json(read_file(source(cat("tests/golden/models/", name, "/", file)), 1 << 20), 16,
                    name);
}

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

// A sequence of one shard, through its batcher.
struct Line {
  explicit Line(Shard& shard) : batcher(shard), shard(shard), id(shard.pages().open()) {}
  ~Line() { shard.pages().close(id); }
  std::vector<float> run(const SequenceRows& rows) { return append(batcher, id, rows); }
  Batcher batcher;
  Shard& shard;
  SequenceId id;
};

inline double largest_gap(std::span<const float> got, std::span<const float> want) {
  EXPECT_EQ(got.size(), want.size());
  double most = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double apart = std::abs(double{got[i]} - double{want[i]});
    most = std::isfinite(apart) ? std::max(most, apart) : HUGE_VAL;
  }
  return most;
}

// Expects PyTorch's hidden states at every point of the whole model, without what its rows have
// beside them. `bound`: of each prompt.
template <typename Bound>
void expect_every_point(Shard& whole, const GoldenValues& golden, const ModelConfig& config,
                        const Bound& bound) {
  const auto channels = static_cast<size_t>(config.channels);
  for (int p = 0; p < golden.prompts(); ++p) {
    const auto ids = golden.ids(p);
    const std::string prefix = cat("p", p, ".");
    const bool all = golden.has(prefix + "hidden_all");
    const auto states = golden.values<float>(prefix + (all ? "hidden_all" : "hidden_at"));
    std::vector<uint32_t> at;
    for (uint32_t row = 0; all && row < ids.size(); ++row) at.push_back(row);
    if (!all) {
      for (const int32_t row : golden.values<int32_t>(prefix + "at")) {
        at.push_back(static_cast<uint32_t>(row));
      }
    }
    const size_t count = at.size() * channels;
    for (int point = 0; point <= config.layers; ++point) {
      Line line(whole);
      const auto rows =
          line.run({.range = {.to = Point(point)}, .tokens = ids, .wanted = Wanted(at)});
      std::vector<float> got;
      const size_t width = rows.size() / at.size();
      for (auto row = rows.begin(); row != rows.end(); row += static_cast<ptrdiff_t>(width)) {
        got.insert(got.end(), row, row + static_cast<ptrdiff_t>(channels));
      }
      const std::span want = std::span(states).subspan(static_cast<size_t>(point) * count, count);
      EXPECT_LE(largest_gap(got, want), bound(p)) << p << " point " << point;
    }
  }
}

inline std::vector<double> log_softmax(std::span<const float> logits) {
  double largest = -1e300, sum = 0;
  for (const float x : logits) largest = std::max(largest, double(x));
  for (const float x : logits) sum += std::exp(x - largest);
  std::vector<double> out;
  for (const float x : logits) out.push_back(x - largest - std::log(sum));
  return out;
}

}  // namespace split::test
