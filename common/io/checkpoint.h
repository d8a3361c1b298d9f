// A GPT-2 checkpoint as Hugging Face lays it out: a directory of config.json and model.safetensors,
// or of several safetensors files with an index. The files are mapped and the tensors are views
// into the maps, so opening a checkpoint reads headers only. What config.json means, and which
// tensors a model needs, is for others to know.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "tensor/shape.h"

namespace split {

// Immutable once made, so any number of threads may read it. Views stay valid for the life of the
// object, also after a move of it. They may be unaligned (io/safetensors.h).
class Checkpoint {
 public:
  // Opens `dir`. Names lose the prefix "transformer."; the causal masks `h.N.attn.bias` and
  // `h.N.attn.masked_bias` that some files carry are left out. Throws Error(kNotFound) when a file
  // is missing, Error(kInput) for one that is refused: a damaged file, a pickle, an index that
  // names files outside of `dir`, one tensor twice, a type other than F32, F16 and BF16.
  explicit Checkpoint(const std::filesystem::path& dir);

  const std::filesystem::path& path() const { return path_; }
  // The text of config.json.
  const std::string& config_json() const { return config_json_; }

  // Sorted.
  std::vector<std::string> names() const;
  // The tensor, or null. The name is without "transformer.".
  const TensorView* find(std::string_view name) const;
  // The tensor. Throws Error(kNotFound) that names it and the file.
  const TensorView& at(std::string_view name) const;

  // The type of `wte.weight`, or without one that of most matrices. Throws Error(kNotFound) when
  // there is neither.
  DType dtype() const;

 private:
  // Returns the names of the tensors it added.
  std::set<std::string> add_file(const std::string& file);
  void add_indexed_files();
  [[noreturn]] void refuse_without_weights() const;

  std::filesystem::path path_;
  std::string weights_file_;  // model.safetensors or the index
  std::string config_json_;
  std::vector<MappedFile> files_;
  std::map<std::string, TensorView, std::less<>> tensors_;
};

}  // namespace split
