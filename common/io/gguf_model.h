// What a GGUF file of architecture "gpt2" says, in Hugging Face's words: the text of a config.json
// and of a tokenizer.json, and the tensors under their names there. A linear weight lies the other
// way in GGUF, [out, in], and is turned; blocks (Q8_0, Q4_0, Q6_K) become floats, exactly.
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
