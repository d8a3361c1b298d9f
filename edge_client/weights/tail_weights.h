// A fine-tuned tail: the tensors of a file by `train` or PEFT, over the weights of its model.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>

#include "base/file.h"
#include "models/model.h"

namespace split::edge {

// Immutable once made.
class TailWeights {
 public:
  // Throws Error(kNotFound, kIo), and Error(kInput) for a file that is truncated, names tensors
  // that the model's blocks and norm do not have, has other shapes or numbers that are not finite.
  TailWeights(const std::filesystem::path& path, const Model& model, const TensorNames& names);

  int first() const { return first_; }                 // its first block
  const std::string& base() const { return base_; }    // hashes of the model's blobs; or empty
  const std::string& model() const { return model_; }  // its name
  bool has(const std::string& weight) const;
  // Returns the tail's weight, in F32: with LoRA, the base's with the product added.
  OwnedTensor weight(const WeightDecl& decl,
                     const std::function<OwnedTensor(const WeightDecl&)>& base) const;

 private:
  struct Lora {
    OwnedTensor a, b;
  };
  void add(const std::string& full, const TensorView& view, const Model& model,
           const TensorNames& names);
  void read_scale(const std::filesystem::path& path,
                  const std::map<std::string, std::string>& said);

  std::map<std::string, OwnedTensor> whole_;
  std::map<std::string, Lora> lora_;  // keyed by matrix
  float scale_ = 1;
  int first_ = 0;
  std::string base_, model_, where_;
};

}  // namespace split::edge
