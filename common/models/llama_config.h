// Traits of the members of the Llama family, a row each, and their config.json.
#pragma once

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "models/rope.h"

namespace split {

// The blocks that have a window, if config.json has no layer_types.
enum class LlamaWindows : uint8_t {
  kAll,          // with a sliding_window
  kLast,         // from max_window_layers on, with use_sliding_window
  kEverySecond,  // the first, the third, ...
  kButEveryNth,  // all but each sliding_window_pattern-th
  kButFirstOfN,  // all but the first of global_attn_every_n_layers
};

// How the members of the family differ.
struct LlamaTraits {
  std::string_view model_type;
  LlamaWindows windows = LlamaWindows::kAll;
  bool qkv_bias = false;          // always, else by attention_bias
  bool head_norms = false;        // norms q and k, each head by itself
  bool plus_one = false;          // norms multiply by weight + 1
  bool post_norms = false;        // behind attention and MLP too
  bool scaled_embedding = false;  // factor sqrt(C)
  bool caps = false;              // caps scores and logits, if config.json has them
  bool tied_head = false;         // default without the field
  bool encodes = false;           // rows see later ones too, and there is no head
  // Norms are LayerNorms without a bias, the embedding's among them; the first block's attention
  // has no norm. Queries, keys and values are one matrix of the checkpoint, gate and up another.
  bool modern_bert = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  int head_dim = 0;  // default without the field; 0: C / heads
  double theta = 10000;
};
std::span<const LlamaTraits> llama_traits();

struct LlamaConfig : ModelConfig {
  LlamaTraits traits;
  float norm_eps = 1e-6f;
  Op activation = Op::k_silu;
  bool qkv_bias = false, out_bias = false, mlp_bias = false;
  bool tied_head = false;
  float attention_scale = 1;
  float score_cap = 0, logit_cap = 0;
  std::vector<int> windows = {};  // by block; 0: none
  RopeConfig rope = {};           // for blocks without a window, if these have a rope of their own
  RopeConfig window_rope = {};
};

// Throws Error(kInput) for each unsupported setting.
LlamaConfig read_llama_config(std::string_view config_json, std::optional<int> context);

}  // namespace split
