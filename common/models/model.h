// A model is a list of stages, each of which traces its own graph. A stage names the blobs it needs
// (a blob may serve two stages: a tied head's is the embedding's) and what it reads and keeps.
// Stages meet at points: point p is what stages()[p] leaves, so that point 0 is the hidden state
// [rows, C] behind the embedding and point L the one behind the last block. A model knows no device
// and no file.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/tensor.h"

namespace split {

// A decoder keeps the keys and values of the rows before; an encoder has all rows of a text in one
// step and keeps nothing.
enum class ModelKind : uint8_t { kDecoder, kEncoder };

// A mark is what a row's embedding looks up beside its token and its place in the text.
enum class Marks : uint8_t {
  kNone,
  kPositions,  // counts tokens from behind padding's id on; padding itself has that
  kTypes,      // 0 of a text's first part, 1 of its second
};

// Facts that all models have. Those of one architecture are in its own file.
struct ModelConfig {
  ModelKind kind = ModelKind::kDecoder;
  std::string model_type;
  int layers = 0;               // L
  int channels = 0;             // C
  int heads = 0;                // H, of queries
  int kv_heads = 0;             // of keys and values
  int head_dim = 0;             // D
  int inner = 0;                // channels of the MLP
  int vocab = 0;                // V
  int max_positions = 0;        // that the model was made for
  int context = 0;              // positions that are served, of these
  int end_of_text = -1;         // the first of eos_token_id; -1 when there is none
  std::vector<int> stops = {};  // all of them
  Marks marks = Marks::kNone;
  int padding = -1;         // the token of that, where marks are positions
  bool final_norm = false;  // an encoder has one behind its last block
  bool ranks = false;       // it scores pairs: its classifier has one label

  bool encodes() const { return kind == ModelKind::kEncoder; }
  bool has_norm() const { return !encodes() || final_norm; }
  // The marks of a text whose second part, if any, begins at token `second`. Appends.
  void add_marks(std::span<const int32_t> tokens, uint32_t second, std::vector<int32_t>& to) const;
};

// How a weight is multiplied by, which decides whether and how it is quantised.
enum class Product : uint8_t {
  kNone,   // added, scaled by or looked up in: never quantised
  kInOut,  // a matrix [inputs, outputs], as transformers' Conv1D has it
  kOutIn,  // a matrix [outputs, inputs]
};

struct WeightDecl {
  std::string name;  // as in the checkpoint, without the prefix of TensorNames
  Dims dims;         // there
  Product product = Product::kNone;
  std::string from = {};   // another tensor of the checkpoint that it is, if not empty,
  int64_t from_row = -1;   // or its rows from this one on
  bool first_row = false;  // graphs read its first row alone, as a vector
};
// The weight's shape when it is stored as `dtype`: what is quantised has its outputs as rows.
// Throws Error(kShape) for a type that it cannot be stored as.
Dims stored_dims(const WeightDecl& decl, DType dtype);

// The unit of download and storage: one safetensors file.
struct Blob {
  std::string name;  // "wte", "wpe", "h.3", "ln_f", "lm_head"
  std::vector<WeightDecl> weights;
};

// Inputs of a stage's graph besides weights.
enum class Takes : uint8_t {
  kTokens,   // "tokens", "positions" and "marks"
  kHidden,   // "hidden" [kRows, C]
  kOutRows,  // the same, and "out_rows": its result has a row for each of these
};

// Keys and values that attention keeps of each row, in "k_cache" and "v_cache" each.
struct KvShape {
  int64_t heads = 0;  // none: nothing is kept
  int64_t head_dim = 0;
  int window = 0;  // a row sees so many keys, its own among them; 0: all before it
  int64_t width() const { return heads * head_dim; }
};

// Types that a stage's graph is traced for.
struct StageTypes {
  // The type that a weight is stored as, by name. Tracing throws Error(kShape) where blocks stand
  // for what is no matrix of a product.
  std::function<DType(const std::string& weight_name)> weight;
  DType cache = DType::kF32;
};

struct Stage {
  std::string name;
  std::vector<std::string> blobs;
  // The blobs where the stage's weights are quantised; empty when they never are.
  std::vector<std::string> quantised = {};
  Takes takes = Takes::kHidden;
  int64_t width = 0;  // of a row of its result
  KvShape kv = {};
  bool joins_last = false;  // its graph begins with the work of the stage before it
  bool logits = false;      // its result has a number for each token of the vocabulary
  std::function<NamedOutput(const StageTypes&)> trace = {};

  const std::vector<std::string>& blobs_as(DType format) const {
    return is_quantised(format) ? quantised : blobs;
  }
};

// A table that the host makes and graphs read as a weight: no checkpoint has it.
struct Constant {
  std::string name;
  Dims dims;
  std::vector<float> values;

  TensorView view() const { return {DType::kF32, dims, std::as_bytes(std::span(values))}; }
};

// Names that the files of a checkpoint have for a model's weights.
struct TensorNames {
  // Returns a tensor's name as the model has it.
  std::string name_of(std::string_view full) const;

  std::span<const std::string_view> prefixes = {};  // each may begin with one of them
  struct Alias {
    std::string_view end, ours;  // names that end so, and how they end in the model
  };
  std::span<const Alias> aliases = {};
  // Whether a tensor without its prefix is none that the model needs, in files of the model itself.
  bool (*ignored)(std::string_view name) = [](std::string_view) { return false; };
  std::string_view first =
      {};  // has the type of all weights that are no blocks, but for exceptions
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;  // stages point to it
  Model& operator=(const Model&) = delete;
  const ModelConfig& config() const { return config_; }
  const std::vector<Blob>& blobs() const { return blobs_; }
  const std::vector<Stage>& stages() const { return stages_; }
  const Blob& blob(std::string_view name) const;          // throws Error(kNotFound)
  const Stage& stage(std::string_view name) const;        // throws Error(kNotFound)
  const WeightDecl& weight(std::string_view name) const;  // throws Error(kNotFound)
  std::span<const Constant> constants() const { return constants_; }
  const Constant* constant(std::string_view name) const;  // or null
  // Numbers of a block's key, and the keys that a row sees there; 0: all before it.
  int64_t kv_width(int layer) const { return block(layer).kv.width(); }
  int window(int layer) const { return block(layer).kv.window; }
  // Numbers in the weights of a stage.
  uint64_t parameters(const Stage& stage) const;
  // Serves fewer positions than it was made for. Before any stage is traced.
  void lower_context(int context);
  // Tokens that end a text, beside those of config.json; ids that the vocabulary does not have are
  // passed over. Before any text runs.
  void add_stops(std::span<const int> ids);
  // Whether a tensor of that name is inside the model, so that one which no stage names is refused.
  virtual bool is_inside(std::string_view tensor) const = 0;

 protected:
  Model() = default;
  ModelConfig config_;
  std::vector<Blob> blobs_;
  std::vector<Stage> stages_;
  std::vector<Constant> constants_;

 private:
  const Stage& block(int layer) const;
};

// From the text of a Hugging Face config.json. `context`: positions to serve, at most those that
// the model was made for; else all of these up to kDefaultContext (models/config_reader.h). Throws
// Error(kInput) that names each setting that is not supported.
std::unique_ptr<Model> make_model(std::string_view config_json, std::optional<int> context = {});
// Those of the model that config.json describes. Throws Error(kInput) for one that is not known and
// for weights that other tools packed, before any file of weights is read.
TensorNames tensor_names(std::string_view config_json);
// Whether config.json names a classifier on top of the model.
bool classifies(std::string_view config_json);
// A config.json of each model and setting that has kernels of its own, as small as can be.
std::vector<std::string> example_configs();

}  // namespace split
