// How a model makes one embedding of a text: the prompt before the text, its most tokens, and how
// the final states of its tokens are pooled, multiplied (Dense) and scaled to unit length. Read
// from the files of sentence-transformers (modules.json, 1_Pooling ...). A reranker makes one score
// of a query and a document, by its classifier. Computed on the host, sums in doubles. Knows no
// device and no socket.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "step/point.h"
#include "text/tokenizer.h"

namespace split {

// Ways to pool; an embedding may have several, side by side.
enum class PoolMode : uint8_t { kCls, kMax, kMean, kMeanSqrtLength, kWeightedMean, kLast };
std::string_view pool_mode_name(PoolMode mode);

// Scales to length 1, unless all are 0.
void to_unit_length(std::span<float> values);
// The mean over the rows of [rows, C].
std::vector<float> mean_row(std::span<const float> rows, size_t channels);

// The ids of a text, and whether some were cut; for a pair, where its second text begins if that
// has a type of its own.
struct SentenceIds {
  std::vector<int32_t> ids;
  bool truncated = false;
  uint32_t second = 0;
};

// A text has more tokens than the model takes, and is not to be cut.
struct InputTooLong : Error {
  InputTooLong(size_t most, size_t got)
      : Error(ErrorKind::kInput, cat("expected at most ", most, " tokens, got ", got), "input") {}
};

// Immutable once read: any number of threads.
class Sentences {
 public:
  using Files = std::span<const std::string>;
  using ReadFile = std::function<std::string(const std::string& name)>;

  // Reads the modules; without modules.json: the mean, scaled to unit length. Throws Error(kInput)
  // that names the file and the field for an unknown module.
  static Sentences read(Files names, const ReadFile& file, const ModelConfig& config);
  // Whether the model was made for this: an encoder, or one with modules.json.
  bool meant() const { return meant_; }
  // Whether it scores pairs.
  bool ranks() const { return ranks_; }

  // Numbers in an embedding.
  size_t dimensions() const;
  // Whether the modules end with a scaling to unit length.
  bool normalizes() const { return normalizes_; }
  const std::vector<PoolMode>& modes() const { return modes_; }
  uint32_t max_tokens() const { return max_tokens_; }
  const std::map<std::string, std::string, std::less<>>& prompts() const { return prompts_; }
  // The prompt before a text: by this name, or the model's default. Throws Error(kInput) that lists
  // the names for an unknown one.
  const std::string& prompt(const std::optional<std::string>& name) const;

  // The ids of a text with the tokens that the tokenizer adds. A text that is too long is cut, its
  // closing tokens kept, or else refused by InputTooLong.
  SentenceIds encode(const Tokenizer* tokenizer, std::string_view text, bool truncate,
                     MemoryShare* memory = nullptr) const;
  // The ids of a query and a document, given without added tokens: a pair that is too long loses
  // tokens of the longer one until both are as long, then of both, or throws InputTooLong. Throws
  // Error(kInput) if the query leaves no room for a document.
  SentenceIds pair(const Tokenizer& tokenizer, std::span<const int32_t> query,
                   std::span<const int32_t> document, bool truncate) const;
  // Bounds ids that a client made.
  SentenceIds bounded(std::vector<int32_t> ids, bool truncate, size_t closing = 1) const;

  // The point whose rows are pooled.
  Point point() const { return point_; }
  // The embedding of a text's rows [tokens, C]; not scaled at the end unless asked for.
  std::vector<float> pool(std::span<const float> rows, bool normalize) const;

  // For a model's description: {"modes", "normalize", "dense"}.
  std::string describe() const;

 private:
  struct Dense {
    size_t inputs = 0, outputs = 0;
    std::vector<float> weight, bias;  // [outputs, inputs]; bias may be empty
    std::string activation;           // "Identity", "Tanh" ...
  };
  // A step after the pooling: one of these, else a scaling.
  struct Module {
    std::optional<Dense> dense = {};
    std::vector<float> norm = {};  // the weight of a LayerNorm without a bias
    double eps = 0;
  };
  void read_modules(const std::string& text, const ReadFile& file, Files names);
  void read_classifier(const ReadFile& file, Files names);
  void read_pooling(const std::string& name, const std::string& text);
  static Dense read_dense(const std::string& path, const ReadFile& file, Files names);
  void read_prompts(const std::string& text);

  bool meant_ = false, ranks_ = false, types_ = false;
  size_t channels_ = 0;
  Point point_;
  std::vector<PoolMode> modes_{PoolMode::kMean};
  std::vector<Module> modules_;  // without a scaling at the end
  bool normalizes_ = true;
  uint32_t max_tokens_ = 0;
  std::map<std::string, std::string, std::less<>> prompts_;
  std::string default_prompt_;
};

}  // namespace split
