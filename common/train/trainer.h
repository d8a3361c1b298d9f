// Trains a tail on windows with known hidden states at its first block, and measures how well it
// predicts others. Has no sockets, threads of its own or clocks, so that any host can drive it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "train/step.h"
#include "train/tail.h"

namespace split::train {

// Windows of a text: ids [count, length + 1], the first `length` to read and the last `length` to
// predict, and the hidden states [count, length, C] of those read.
struct WindowSet {
  int64_t length = 0;
  std::vector<int32_t> ids;
  std::vector<float> hidden;
  size_t count() const { return ids.size() / static_cast<size_t>(length + 1); }
};

// Adds the weights of a model's stages from block `from` on (-1: all) and its constants, as floats.
// `source` has a weight by its name in the checkpoint. Trained ones become state, LoRA's matrices B
// zeros; the caller fills A.
void add_weights(array::Store& store, const Tail& tail, int from,
                 const std::function<OwnedTensor(const WeightDecl&)>& source);

// Computes the hidden states of a set's windows by the frozen blocks, which `store` has.
void add_hidden(array::Runtime& runtime, array::Store& store, Tail& tail, WindowSet& set);

// Bytes of the machine's memory, and of a GPU's own.
struct Needs {
  uint64_t host = 0, gpu = 0;
  // Adds weights and state, which a GPU has copies of, and memory between kernels.
  void add(const array::Runtime& runtime, uint64_t leaves, uint64_t plans = 0);
};

class Trainer {
 public:
  // `store` has the tail's weights. A step takes `batch` windows of `length` tokens.
  Trainer(array::Runtime& runtime, array::Store& store, Tail& tail, const Windows& windows,
          const optim::Options& options, double clip_norm);

  // Returns the needs of a Trainer with its store, before there is one.
  static Needs needs(const array::Runtime& runtime, Tail& tail, const Windows& windows,
                     const optim::Options& options, double clip_norm);

  // Trains on these windows of a set; `factor` multiplies the rate. Returns the loss before.
  float step(const WindowSet& set, std::span<const size_t> which, double factor);
  float gradient_norm() const { return step_.gradient_norm(); }
  int64_t steps() const { return step_.steps(); }
  // e to the mean loss of all that a set's windows predict.
  double perplexity(const WindowSet& set);
  // Bytes of both plans, beside the store's.
  size_t plan_bytes() const { return step_.plan().arena_bytes() + predict_.arena_bytes(); }
  const Tensor& loss() const { return loss_; }

  // Puts windows where the graphs read them.
  void show(const WindowSet& set, std::span<const size_t> which);

 private:
  array::Store& store_;
  const Windows windows_;
  const int64_t channels_;
  const Tensor lost_, loss_;  // each row's loss, and their mean
  Step step_;
  array::Plan predict_;
};

}  // namespace split::train
