// A model as stages: "embed", "block.0" ... "block.L-1", "norm", "head". A stage names the blobs it
// needs (a blob may serve two stages: GPT-2's embedding is its head) and traces its graph. Stages
// meet at points: point k, 0..L, is the hidden state [rows, C] that enters block k; point L leaves
// the last block. A model knows no device and no file.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace split {

struct ModelConfig {
  std::string model_type;
  int layers = 0;    // L
  int channels = 0;  // C
  int heads = 0;     // H
  int inner = 0;     // of the MLP
  int vocab = 0;     // V
  int context = 0;   // positions
  float norm_eps = 1e-5f;
  std::string activation;       // "gelu_new", "gelu", "relu", "silu"
  bool scale_attention = true;  // by 1 / sqrt(D)
  bool scale_by_layer = false;  // and by 1 / (layer + 1)
  bool tied_head = true;
  int end_of_text = -1;  // eos_token_id; -1 when there is none
};

// How a weight is multiplied by, which decides whether and how it is quantised.
enum class Product : uint8_t {
  kNone,   // added, scaled by or looked up in: never quantised
  kInOut,  // a matrix [inputs, outputs], as GPT-2's Conv1D has it
  kOutIn,  // a matrix [outputs, inputs]
};

struct WeightDecl {
  std::string name;  // as in the checkpoint, without "transformer."
  Dims dims;         // there
  Product product = Product::kNone;
  std::string from = {};  // another tensor of the checkpoint that it is, if not empty
};
// The weight's shape when it is stored as `dtype`: what is quantised has its outputs as rows.
// Throws Error(kShape) for a type that it cannot be stored as.
Dims stored_dims(const WeightDecl& decl, DType dtype);

// The unit of download and storage: one safetensors file.
struct Blob {
  std::string name;  // "wte", "wpe", "h.3", "ln_f", "lm_head"
  std::vector<WeightDecl> weights;
};

struct Stage {
  std::string name;
  std::vector<std::string> blobs;
  // The same where the stage's weights are quantised; empty when they never are.
  std::vector<std::string> quantised = {};
  const std::vector<std::string>& blobs_as(DType format) const {
    return is_quantised(format) ? quantised : blobs;
  }
};

class Model {
 public:
  virtual ~Model() = default;
  const ModelConfig& config() const { return config_; }
  const std::vector<Blob>& blobs() const { return blobs_; }
  const std::vector<Stage>& stages() const { return stages_; }
  const Blob& blob(std::string_view name) const;          // throws Error(kNotFound)
  const Stage& stage(std::string_view name) const;        // throws Error(kNotFound)
  const WeightDecl& weight(std::string_view name) const;  // throws Error(kNotFound)

  // What a graph's weights are stored as, by name. Tracing throws Error(kShape) where blocks stand
  // for what is no matrix of a product.
  using DTypeOf = std::function<DType(const std::string& weight_name)>;

  // Tokens and positions to point 0: output "hidden" [kRows, C].
  virtual std::vector<NamedOutput> trace_embed(const DTypeOf& dtype) const = 0;
  // Point `layer` to point `layer + 1`: input "hidden" and output "hidden_out" [kRows, C]; caches
  // "k_cache", "v_cache".
  virtual std::vector<NamedOutput> trace_block(int layer, const DTypeOf& dtype,
                                               DType cache) const = 0;
  // Point L, rows picked by "out_rows", through the final norm: input "hidden", output "normed"
  // [kOutRows, C].
  virtual std::vector<NamedOutput> trace_norm(const DTypeOf& dtype) const = 0;
  // The same and on to the vocabulary: output "logits" [kOutRows, V]. A tied head multiplies by the
  // embedding unless its own matrix "lm_head.weight" is stored in blocks.
  virtual std::vector<NamedOutput> trace_head(const DTypeOf& dtype) const = 0;

 protected:
  ModelConfig config_;
  std::vector<Blob> blobs_;
  std::vector<Stage> stages_;
};

// From the text of a Hugging Face config.json.
// Throws Error(kInput) that names each setting that is not supported.
std::unique_ptr<Model> make_model(std::string_view config_json);

}  // namespace split
