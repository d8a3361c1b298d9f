// The supported architectures of GGUF files: Hugging Face's names of their tensors and settings.
// Knows no tokenizer and no bytes of tensors.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "io/gguf.h"

namespace split {

struct GgufName {
  std::string_view gguf, hugging_face;
};

// An architecture's differences from Hugging Face's files. Rows for queries and keys may be
// permuted, as converters of "llama" do: the pair (i, i + D / 2) of a head side by side.
struct GgufArchitecture {
  std::string_view name;       // general.architecture, and the prefix of its keys
  std::string_view what;       // for messages: "a GPT-2"
  std::string_view blocks;     // prefix of a block's tensors
  std::string_view embedding;  // name of token_embd.weight
  // Names of tensors, where they are not a Llama's: outside of blocks, in a block without ".weight"
  // or ".bias", and in a block with their ends.
  std::span<const GgufName> outside = {}, in_block = {}, whole = {};
  bool linear_in_out = false;   // linear weights are [in, out] in Hugging Face's files
  bool turned_heads = false;    // rows of queries and keys lie in pairs
  bool norms_plus_one = false;  // norms' weights are one larger than Hugging Face's
  bool encodes = false;         // there is no head

  bool is_gpt2() const { return linear_in_out; }
  bool is_bert() const { return name == "bert"; }
  bool is_modern_bert() const { return name == "modern-bert"; }
};

inline constexpr uint64_t kGgufMaxSize = 1 << 20;  // models/config_reader.h's
inline constexpr std::string_view kGgufRopeFactors = "rope_freqs.weight";

// Throws Error(kInput) with a list of the known ones.
const GgufArchitecture& gguf_architecture(const Gguf& file);
// Whether a block is one of those behind the model's that draft tokens.
bool gguf_drafts(const Gguf& file, const GgufArchitecture& architecture, uint64_t block);
// Converts "blk.3.attn_q.weight" to "layers.3.self_attn.q_proj.weight"; empty for a tensor that is
// not a weight of the model. Throws Error(kInput) for one that such a model does not have.
std::string hugging_face_name(const Gguf& file, const GgufArchitecture& architecture,
                              std::string_view name);
// Returns the config.json. `own_head`: the head is not the embedding.
Json gguf_config(const Gguf& file, const GgufArchitecture& architecture, bool own_head);
// Returns an encoder's pooling, by sentence-transformers' names; empty if the file has none. Throws
// Error(kInput) for an unknown one.
std::string_view gguf_pooling(const Gguf& file, const GgufArchitecture& architecture);
// The weights of the Dense modules behind the pooling, in their order, where a file has these.
inline constexpr std::string_view kGgufDense[] = {"dense_2.weight", "dense_3.weight"};
// Heads whose rows lie in pairs, of a tensor that has any; else 0.
uint64_t turned_heads(const Gguf& file, const GgufArchitecture& architecture,
                      std::string_view hugging_face_name);

}  // namespace split
