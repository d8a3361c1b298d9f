// Rotary positions as config.json has them, and the tables of cosines and sines that a model makes
// of them: with code of its own in double, so that they have the same bits on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/config_reader.h"

namespace split {

struct RopeConfig {
  enum class Type : uint8_t {
    kDefault,
    kLinear,   // all frequencies divided by the factor
    kLlama3,   // low frequencies divided, those between two bounds smoothly
    kYarn,     // the same by "YaRN" (2023), and scores scaled
    kFactors,  // each divided by one of `factors`, as GGUF's rope_freqs.weight says
  };
  Type type = Type::kDefault;
  double theta = 10000;
  double factor = 1;
  double original_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // its bounds are whole numbers
  double attention_factor = 1;                       // of cosines and sines
  std::vector<float> factors = {};

  bool operator==(const RopeConfig&) const = default;
};

// Those of layers of one kind ("full_attention", "sliding_attention"), in either spelling:
// rope_parameters, which may have a member for each kind, or rope_theta and rope_scaling.
// `theta`: where config.json names none. Throws Error(kInput) for a type that is not supported.
RopeConfig read_rope(const ConfigReader& reader, const char* layer_kind, int max_positions,
                     double theta);

// [head_dim / 2], float by float as transformers computes them.
std::vector<float> inverse_frequencies(const RopeConfig& rope, int head_dim);

// [positions, head_dim / 2] each: of the angle float(position * inverse frequency), times the
// attention factor.
struct RopeTables {
  std::vector<float> cos, sin;
};
RopeTables rope_tables(const RopeConfig& rope, int head_dim, int positions);

}  // namespace split
