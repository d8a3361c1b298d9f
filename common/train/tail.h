// The trained part of a model: its last blocks and the final norm, or a LoRA on the matrices of the
// blocks; and its graphs over windows. Weights are leaves of a store by their names in the
// checkpoint. Knows no file, no text and no device.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "array/store.h"
#include "optim/optim.h"
#include "train/windows.h"

namespace split::train {

struct TailShape {
  int first = 0;    // the first block of the tail
  int lora = 0;     // rank; 0: the blocks themselves are trained
  float scale = 2;  // alpha / rank of a LoRA
};

// "h.6.attn.c_attn.weight" -> "h.6.attn.c_attn.lora_A": A [rank, inputs], B [outputs, rank].
std::string lora_name(const std::string& matrix, char which);

class Tail {
 public:
  // Throws Error(kInput) for an encoder and for more blocks than there are.
  Tail(const Model& model, const TailShape& shape);

  const Model& model() const { return model_; }
  const TailShape& shape() const { return shape_; }
  // Tensors that change, with their shapes: matrices before vectors.
  const std::vector<optim::State>& trained() const { return trained_; }
  // Weights that the graphs of stages from block `from` on (-1: the embedding) read.
  std::vector<std::string> weights(int from) const;
  uint64_t frozen_bytes() const;  // bytes of weights that only the frozen blocks read

  // Hidden states at the tail's first block, for ids [rows]; and logits [rows, V] for those states.
  Tensor head(const Windows& windows, const Tensor& ids);
  Tensor logits(const Windows& windows, const Tensor& hidden);
  // Trained leaves in the graphs' order, in an optimiser's groups: vectors do not decay.
  std::vector<optim::Group> groups(const optim::Options& options);

 private:
  Tensor leaf(const std::string& name, const Dims& dims);
  Leaves leaves();

  const Model& model_;
  const TailShape shape_;
  std::vector<optim::State> trained_;
  std::map<std::string, Tensor> made_;  // one node a leaf
};

}  // namespace split::train
