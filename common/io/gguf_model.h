// Translates a GGUF file into Hugging Face's words: the text of a config.json, of a tokenizer.json
// (gguf_tokenizer.h) and of an encoder's modules, and the tensors under their names there
// (gguf_architectures.h). Blocks that are our own (Q8_0, Q4_0) stay where they lie, but for an
// embedding, of which rows are read: it becomes floats, and the blocks are the matrix of a tied
// head as well. Other blocks become halves, which one line tells. Of GPT-2 a linear weight lies the
// other way in GGUF, [out, in]: floats are turned, and other blocks become floats, exactly.
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
  std::map<std::string, TensorView, std::less<>> tensors;  // into the file or into `owned`
  std::vector<OwnedTensor> owned;
  // Matrices that became halves: the types of their blocks, and their bytes before and after.
  std::set<std::string, std::less<>> widened_types;
  uint64_t widened_from = 0, widened_to = 0;
};

// Throws Error(kInput): another architecture, a missing key, a tensor that such a model does not
// have.
GgufModel read_gguf_model(const Gguf& file);

}  // namespace split
