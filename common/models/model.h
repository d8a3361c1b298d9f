// A model is a list of stages, each of which traces its own graph. A stage names the blobs it needs
// (a blob may serve two stages: a tied head's is the embedding's), its inputs and its caches.
// Stages meet at points: point p is the output of stages()[p], so that point 0 is the hidden state
// [rows, C] behind the embedding and point L the one behind the last block. Knows no device and no
// file.
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

// A mark is a row's embedding index beside its token and its place in the text.
enum class Marks : uint8_t {
  kNone,
  kPositions,  // counts tokens from behind padding's id on; padding has its id
  kTypes,      // 0 in a text's first part, 1 in its second
};

// Part of a row beside its hidden state: a result of one stage that blocks behind it read.
struct RowPart {
  std::string name;         // name of the result, and of the blocks' input
  int64_t columns = 0;      // both have so many
  int64_t each = 0;         // columns of each block, one block's after the other's; 0: all read all
  int first = 0, last = 0;  // points whose rows need it

  // Columns of a row at a point, the trailing ones: those that blocks from there on read.
  int64_t at(int point) const {
    return first <= point && point <= last ? columns - each * point : 0;
  }
  bool operator==(const RowPart&) const = default;
};

// Facts that all models have. Other facts are in an architecture's own file.
struct ModelConfig {
  ModelKind kind = ModelKind::kDecoder;
  std::string model_type;
  int layers = 0;               // L
  int channels = 0;             // C
  int heads = 0;                // H, heads of queries
  int kv_heads = 0;             // heads of keys and values
  int head_dim = 0;             // D
  int inner = 0;                // channels of the MLP
  int vocab = 0;                // V
  int max_positions = 0;        // limit of the model
  int context = 0;              // positions that are served, at most these
  int end_of_text = -1;         // the first of eos_token_id; -1: none
  std::vector<int> stops = {};  // all of eos_token_id
  Marks marks = Marks::kNone;
  int padding = -1;         // token for padding, if marks are positions
  bool final_norm = false;  // an encoder has one behind its last block
  bool ranks = false;       // scores pairs: its classifier has one label
  std::vector<RowPart> row_parts = {};

  bool encodes() const { return kind == ModelKind::kEncoder; }
  // Floats of a row at a point, 0 to L.
  int64_t row_width(int point) const;
  bool has_norm() const { return !encodes() || final_norm; }
  // Appends the marks of a text whose second part, if any, begins at token `second`.
  void add_marks(std::span<const int32_t> tokens, uint32_t second, std::vector<int32_t>& to) const;
};

// The orientation of a weight's product, which decides whether and how it is quantised.
enum class Product : uint8_t {
  kNone,   // added, scaled by or looked up in: never quantised
  kInOut,  // a matrix [inputs, outputs], transformers' Conv1D
  kOutIn,  // a matrix [outputs, inputs]
};

struct WeightDecl {
  std::string name;  // in the checkpoint, without the prefix of TensorNames
  Dims dims;         // in the checkpoint
  Product product = Product::kNone;
  std::string from = {};   // the tensor of the checkpoint that it copies, if not empty,
  int64_t from_row = -1;   // its rows from this one on; -1: all
  bool first_row = false;  // graphs read its first row alone, as a vector
  int64_t spread = 0;      // graphs read its one number as a vector of so many; 0: as it is
  bool looked_up = false;  // graphs read rows that the host looks up, in whatever blocks there are
  bool finite = false;     // its numbers reach all rows behind one: refused if they are not finite
};
// The weight's shape when it is stored as `dtype`: quantised weights have outputs as rows. Throws
// Error(kShape) for a type that is impossible for it.
Dims stored_dims(const WeightDecl& decl, DType dtype);

// The unit of download and storage: one safetensors file.
struct Blob {
  std::string name;  // "wte", "wpe", "h.3", "ln_f", "lm_head"
  std::vector<WeightDecl> weights;
};

// Inputs of a stage's graph besides weights.
enum class Takes : uint8_t {
  kTokens,   // "tokens", "positions" and "marks"
  kHidden,   // "hidden" [kRows, C], and what its rows have beside it, by name
  kOutRows,  // kHidden's, and "out_rows": the result has a row for each
};

// Keys and values that attention keeps of each row, in "k_cache" and "v_cache"; or the state that
// a block keeps of all rows in their place, in "state".
struct KvShape {
  int64_t heads = 0;  // 0: nothing is kept
  int64_t head_dim = 0;
  int window = 0;  // keys that a row sees, its own among them; 0: all before it
  StateShape state = {};
  int source = -1;  // the block that makes them, itself or one before; -1: itself
  int64_t width() const { return heads * head_dim; }
};

// Types that a stage's graph is traced for.
struct StageTypes {
  // The stored type of a weight, by name. Tracing throws Error(kShape) for blocks of anything but a
  // product's matrix.
  std::function<DType(const std::string& weight_name)> weight;
  DType cache = DType::kF32;
};

struct Stage {
  std::string name;
  std::vector<std::string> blobs;
  // The blobs of quantised weights; empty if these are never quantised.
  std::vector<std::string> quantised = {};
  Takes takes = Takes::kHidden;
  int64_t width = 0;  // columns of its result
  KvShape kv = {};
  bool joins_last = false;  // its graph begins with the work of the stage before it
  bool logits = false;      // its result has a number for each token of the vocabulary
  std::function<NamedOutput(const StageTypes&)> trace = {};
  // Weights whose rows, by token, are inputs of these names, in floats: no device holds the others.
  std::vector<std::string> tables = {};

  const std::vector<std::string>& blobs_as(DType format) const {
    return is_quantised(format) ? quantised : blobs;
  }
  // Describes what a decoder's block does with earlier rows: "attention", "linear attention",
  // "attention, window 512"; empty for other stages.
  std::string kind() const;
};

// A table that the host makes and graphs read as a weight: no checkpoint has it.
struct Constant {
  std::string name;
  Dims dims;
  std::vector<float> values;

  TensorView view() const { return {DType::kF32, dims, std::as_bytes(std::span(values))}; }
};

// Names of a model's weights in the files of a checkpoint.
struct TensorNames {
  // Returns a tensor's name in the model.
  std::string name_of(std::string_view full) const;

  std::span<const std::string_view> prefixes = {};  // each name may begin with one of them
  struct Alias {
    std::string_view end, ours;  // an ending of names, and the model's own for it
  };
  std::span<const Alias> aliases = {};
  // Whether the model does not need this tensor of its own files, without its prefix.
  bool (*ignored)(std::string_view name) = [](std::string_view) { return false; };
  std::string_view first = {};  // has the type of all weights outside of blocks, but for exceptions
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
  const Constant* constant(std::string_view name) const;  // null: no such constant
  // Numbers of a block's key, and the keys that a row sees there; 0: all before it.
  int64_t kv_width(int layer) const { return block(layer).kv.width(); }
  int window(int layer) const { return block(layer).kv.window; }
  // Whether a stage reads nothing of a blob but rows, so that it need not be in memory.
  bool stays_on_disk(std::string_view blob) const;
  const StateShape& state(int layer) const { return block(layer).kv.state; }
  // Numbers in the weights of a stage.
  uint64_t parameters(const Stage& stage) const;
  // Lowers the number of served positions. Call before any stage is traced.
  void lower_context(int context);
  // Adds tokens that end a text to those of config.json; skips ids outside the vocabulary. Call
  // before any text runs.
  void add_stops(std::span<const int> ids);
  // Whether a tensor of this name is inside the model, so that it is refused if no stage names it.
  virtual bool is_inside(std::string_view tensor) const = 0;

 protected:
  Model() = default;
  // Adds the head, whose graph begins with the final norm's. A tied one shares the blob and the
  // weight of the embedding, except quantised copies, which the embedding lacks.
  void add_head(bool tied, const std::string& embedding,
                std::function<NamedOutput(const StageTypes&)> trace);
  // Returns the head's weight among `types`: a tied head multiplies by the embedding unless its own
  // matrix is stored in blocks.
  std::string head_weight(const StageTypes& types) const;
  ModelConfig config_;
  std::vector<Blob> blobs_;
  std::vector<Stage> stages_;
  std::vector<Constant> constants_;

 private:
  const Stage& block(int layer) const;
};

// Makes a model from a Hugging Face config.json. `context`: positions to serve, at most the
// model's; else all of these up to kDefaultContext (models/config_reader.h). Throws Error(kInput)
// that names each unsupported setting.
std::unique_ptr<Model> make_model(std::string_view config_json, std::optional<int> context = {});
// The names for the model of a config.json. Throws Error(kInput) for an unknown one and for weights
// that other tools packed, before any file of weights is read.
TensorNames tensor_names(std::string_view config_json);
// Whether config.json names a classifier on top of the model.
bool classifies(std::string_view config_json);
// A config.json, as small as possible, for each model and setting with kernels of its own.
std::vector<std::string> example_configs();

}  // namespace split
