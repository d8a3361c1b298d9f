// The config.json of Qwen3.5 (3.6 and 3.8 have its architecture), whose blocks are of two kinds:
// full attention with a gate, and gated DeltaNet, which keeps a state in place of keys and values.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "models/rope.h"

namespace split {

struct Qwen35Config : ModelConfig {
  float norm_eps = 1e-6f;
  bool tied_head = false;
  std::vector<bool> full = {};  // by block: full attention
  int turned = 0;               // leading channels of a head that the rope turns, in halves
  RopeConfig rope = {};
  StateShape state = {};  // state of a block of gated DeltaNet
};

// Takes the settings of the text model in `text_config`, or flat. Throws Error(kInput) for each
// unsupported setting.
Qwen35Config read_qwen35_config(std::string_view config_json, std::optional<int> context);

}  // namespace split
