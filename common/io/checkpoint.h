// A checkpoint in Hugging Face's layout: a directory of config.json and model.safetensors, or of
// several safetensors files with an index. Matrices may be blocks, as weight_file.h describes them.
// The files are mapped and the tensors are views into the maps, so opening a checkpoint reads
// headers only. A GGUF file looks like such a directory (gguf_model.h), with its linear float
// weights transposed into memory of ours. Does not know which tensors a model needs.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "io/safetensors.h"
#include "models/model.h"
#include "tensor/shape.h"

namespace split {

// The weights of a classifier on an encoder, as a file of their own that checkpoints of
// ...ForSequenceClassification have among the others (Checkpoint::files()).
inline constexpr const char* kClassifierFile = "classifier.safetensors";

// Immutable once made, so any number of threads may read it. Views stay valid for the life of the
// object, even after a move, and may be unaligned (io/safetensors.h).
class Checkpoint {
 public:
  // Opens a directory, or a GGUF file, or a directory with one GGUF file and no safetensors. Names
  // are those of the model's weights: without a prefix, and without the tensors that it ignores
  // (models/model.h, tensor_names()). Throws Error(kNotFound) for a missing file, Error(kIntegrity)
  // for damaged weights, Error(kInput) for what is refused: a pickle, an index that names files
  // outside of its directory, a tensor twice, a type other than F32, F16, BF16 and described
  // blocks.
  explicit Checkpoint(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  // The text of config.json.
  const std::string& config_json() const { return config_json_; }
  // List the files beside the weights: config.json, a tokenizer's, and the description of
  // embeddings (modules.json, 1_Pooling/config.json ...); and read one. Throws Error(kNotFound) for
  // another, Error(kIo), Error(kInput) above 16 MiB.
  std::vector<std::string> files() const;
  std::string file(std::string_view name) const;

  // Sorted.
  std::vector<std::string> names() const;
  // Returns the tensor, or null. The name is without a prefix.
  const TensorView* find(std::string_view name) const;
  // Returns the tensor. Throws Error(kNotFound) that names it and the file.
  const TensorView& at(std::string_view name) const;

  // Returns the type of weights that are not blocks: of the model's first one, or without it of
  // most matrices. Throws Error(kNotFound) if there is neither.
  DType dtype() const;

 private:
  std::string text_of(std::string_view name) const;
  void open_directory();
  void open_gguf(const std::filesystem::path& file);
  // Returns the names of the added tensors.
  std::set<std::string> add_file(const std::string& file);
  void add_indexed_files();
  [[noreturn]] void refuse_without_weights() const;

  std::filesystem::path path_;
  std::filesystem::path weights_file_;  // model.safetensors, the index or the GGUF file
  std::string config_json_;
  TensorNames tensor_names_;
  std::vector<MappedFile> maps_;
  std::vector<OwnedTensor> owned_;                         // a GGUF file's tensors
  std::map<std::string, std::string, std::less<>> texts_;  // a GGUF file's other files, by name
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::vector<NamedTensor> classifier_;  // what stands on the encoder of one that classifies
};

}  // namespace split
