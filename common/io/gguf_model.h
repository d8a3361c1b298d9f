// Translates a GGUF file into Hugging Face's files: the text of a config.json, of a tokenizer.json
// (gguf_tokenizer.h) and of an encoder's modules, and the tensors under their names there
// (gguf_architectures.h). Blocks of our own formats (Q8_0, Q4_0) stay in place, except an
// embedding, which is read by rows: it becomes floats, and its blocks are also the matrix of a tied
// head. Other blocks become halves, with a line that says so. GPT-2's linear weights are transposed
// in GGUF, [out, in]: floats are transposed back, and other blocks become floats, exactly.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/gguf.h"

namespace split {

struct GgufModel {
  std::string config_json;
  std::map<std::string, std::string> texts;                // contents of other files, by name
  std::map<std::string, TensorView, std::less<>> tensors;  // views into the file or `owned`
  std::vector<OwnedTensor> owned;
  // Matrices converted to halves: their blocks' types, and bytes before and after.
  std::set<std::string, std::less<>> widened_types;
  uint64_t widened_from = 0, widened_to = 0;
};

// Throws Error(kInput): another architecture, a missing key, an unknown tensor.
GgufModel read_gguf_model(const Gguf& file);

}  // namespace split
