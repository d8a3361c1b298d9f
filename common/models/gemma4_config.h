// The config.json of Gemma 4's text models: the dense ones, and E, whose blocks have an input of
// their own for each token (per-layer inputs) and whose last blocks have no keys and values.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "models/rope.h"

namespace split {

struct Gemma4Block {
  bool full = false;   // attends to all rows before it, not to a window of them
  bool own = true;     // makes keys and values, else it reads those of a block before
  bool values = true;  // has a product for values; else these are the keys' before norm and rope
  int source = 0;      // the block whose keys and values it reads
  int kv_heads = 1, head_dim = 2;
  int inner = 0;
  int window = 0;  // 0: none
};

struct Gemma4Config : ModelConfig {
  float norm_eps = 1e-6f;
  Op activation = Op::k_gelu_new;
  float logit_cap = 0;  // 0: none
  bool tied_head = true;
  int per_layer = 0;  // P, channels of a block's own input; 0: there is none
  std::vector<Gemma4Block> blocks = {};
  RopeConfig rope = {}, window_rope = {};  // for full blocks, and for those with a window
};

// Takes the settings of the text model in `text_config`, or flat. Throws Error(kInput) for each
// unsupported setting.
Gemma4Config read_gemma4_config(std::string_view config_json, std::optional<int> context);

}  // namespace split
