// The architectures of GGUF files that are read here: how Hugging Face names their tensors and
// settings. Knows no tokenizer and no bytes of tensors.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "io/gguf.h"

namespace split {

// How one of them differs from Hugging Face's files. Rows that make queries and keys may lie in
// another order, as converters of "llama" put them: the pair (i, i + D / 2) of a head side by side.
struct GgufArchitecture {
  std::string_view name;        // general.architecture, and what its keys begin with
  std::string_view what;        // for messages: "a GPT-2"
  std::string_view blocks;      // what the names of a block's tensors begin with
  std::string_view embedding;   // the name of token_embd.weight
  bool linear_in_out = false;   // linear weights are [in, out] in Hugging Face's files
  bool turned_heads = false;    // rows of queries and keys lie in pairs
  bool norms_plus_one = false;  // norms' weights are one larger than Hugging Face's
  bool encodes = false;         // there is no head
};

// Throws Error(kInput) that lists those that are known.
const GgufArchitecture& gguf_architecture(const Gguf& file);
// "blk.3.attn_q.weight" -> "layers.3.self_attn.q_proj.weight"; empty for a tensor that is no
// weight. Throws Error(kInput) for one that such a model does not have.
std::string hugging_face_name(const Gguf& file, const GgufArchitecture& architecture,
                              std::string_view name);
// Returns what config.json says. `own_head`: the head is not the embedding.
Json gguf_config(const Gguf& file, const GgufArchitecture& architecture, bool own_head);
// Returns how an encoder's file has its texts pooled, as sentence-transformers calls it; empty
// where it does not say. Throws Error(kInput) for a way that is not known.
std::string_view gguf_pooling(const Gguf& file, const GgufArchitecture& architecture);
// The weights of the Dense modules behind the pooling, in their order, where a file has these.
inline constexpr std::string_view kGgufDense[] = {"dense_2.weight", "dense_3.weight"};
// Heads whose rows lie in pairs, of a tensor that has any; else 0.
uint64_t turned_heads(const Gguf& file, const GgufArchitecture& architecture,
                      std::string_view hugging_face_name);

}  // namespace split
