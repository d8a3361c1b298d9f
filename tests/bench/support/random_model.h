// Models that are measured: with seeded random weights, made in this process, so that measuring
// needs no file and no download, or of a checkpoint.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "io/checkpoint.h"
#include "models/model.h"
#include "run/shard/shard.h"

namespace split::bench {

// "demo" (the bundled model's shapes), "tiny", "gpt2" and its larger ones, "minilm-l6" and
// "bge-base" (encoders), "smollm2-135m", "qwen2.5-0.5b", "tinyllama-1.1b", "llama-3.2-1b",
// "qwen3.5-0.8b".
std::vector<std::string> random_model_sizes();

// A model that is measured. Immutable once made, outlives the shards that read it.
class MeasuredModel {
 public:
  virtual ~MeasuredModel() = default;
  const Model& model() const { return *model_; }
  const ModelConfig& config() const { return model_->config(); }
  virtual WeightSource weights() const = 0;
  // Bytes that a token's step reads of the matrices: all but the embeddings, which give a row; a
  // tied head is one of them. Where `formats` are quantised, of what is quantised.
  double step_bytes(const StageFormats& formats = {}) const;
  double total_bytes() const;

 protected:
  std::unique_ptr<Model> model_;
};

// The shapes are real, the text would be noise: matrices have a standard deviation of 0.02, norms
// are 1, biases 0.
class RandomModel final : public MeasuredModel {
 public:
  // Matrices in F32 or F16, vectors in F32. `context`: the most positions, where there are more.
  RandomModel(const std::string& size, DType dtype, uint64_t seed = 1,
              std::optional<int> context = {});

  const std::string& config_json() const { return config_json_; }
  WeightSource weights() const override;
  // config.json and model.safetensors, as Hugging Face lays them out.
  void write(const std::string& dir) const;

 private:
  std::string config_json_;
  std::map<std::string, OwnedTensor> tensors_;
};

// A checkpoint, with the weights that a server takes of it.
class FileModel final : public MeasuredModel {
 public:
  FileModel(const std::string& path, std::optional<int> context = {});
  WeightSource weights() const override { return weights_of(checkpoint_, *model_); }

 private:
  Checkpoint checkpoint_;
};

// Numbers with mean 0 and standard deviation `deviation`: as F32, F16 or BF16 nearly normal (the
// sum of four uniform ones), in the blocks of a quantised matrix uniform. The same seed gives the
// same bytes.
OwnedTensor random_tensor(const Dims& dims, DType dtype, uint64_t seed, float deviation = 0.02f);

// Ids of 0..V-1, seeded.
std::vector<int32_t> random_tokens(const ModelConfig& config, size_t count);

// A directory of this process, gone with the object.
class ScratchDir {
 public:
  ScratchDir();
  ~ScratchDir();
  ScratchDir(const ScratchDir&) = delete;
  ScratchDir& operator=(const ScratchDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace split::bench
