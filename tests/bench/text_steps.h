// Whole texts of an encoder on the CPU device, timed from ids to embeddings as a server makes them:
// all texts of a request packed into as few steps as they need, pooled by the mean and scaled.
#pragma once

#include "bench/support/bench.h"
#include "bench/support/random_model.h"
#include "run/batcher.h"
#include "run/sentences.h"

namespace split::bench {

// One thread at a time. The device, the model and its weights outlive it.
class TextSteps {
 public:
  TextSteps(Device& device, const Model& model, const WeightSource& weights, Profile profile);

  // Seconds of a request of `texts` texts of `length` tokens.
  double embed(uint32_t texts, uint32_t length);
  const std::vector<float>& embeddings() const { return embeddings_; }  // of the last request

 private:
  Shard shard_;
  Batcher batcher_;
  const Sentences sentences_;
  std::vector<float> embeddings_;
};

// `texts` texts of `length` tokens; the same in every call.
std::vector<std::vector<int32_t>> random_texts(const ModelConfig& config, uint32_t texts,
                                               uint32_t length);
// How a model without files of sentence-transformers pools.
Sentences plain_sentences(const ModelConfig& config);
// Their embeddings, one after the other.
std::vector<float> embed(Batcher& batcher, std::span<const std::vector<int32_t>> texts,
                         const Sentences& sentences);

// The rows of an encoder's area cpu: 128 tokens alone, and 256 texts of 16 in one request, beside
// what the bare products of its blocks allow.
void measure_texts(const Options& options, std::span<const Profile> profiles, Device& device,
                   Report& report);

}  // namespace split::bench
