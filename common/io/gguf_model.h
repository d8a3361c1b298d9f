// Translates a GGUF file of architecture "gpt2" into Hugging Face's words: the text of a
// config.json and of a tokenizer.json, and the tensors under their names there. A linear weight
// lies the other way in GGUF, [out, in]: floats are turned; blocks (Q8_0, Q4_0), which are our own,
// stay where they lie. Other blocks (Q6_K, and any that are no matrix of a product) become floats,
// exactly. So does an embedding in blocks, which are the matrix of a tied head as well.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "io/gguf.h"

namespace split {

struct GgufModel {
  std::string config_json;
  std::optional<std::string> tokenizer_json;
  std::map<std::string, TensorView, std::less<>> tensors;  // into the file or into `owned`
  std::vector<OwnedTensor> owned;
};

// Throws Error(kInput): another architecture, a missing key, a tensor that GPT-2 does not have.
GgufModel read_gguf_model(const Gguf& file);

}  // namespace split
