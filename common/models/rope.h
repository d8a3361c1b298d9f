// Rotary positions of config.json, and a model's tables of cosines and sines: made by code of its
// own in double, so that they have the same bits on every machine.
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
    kLinear,        // all frequencies divided by the factor
    kLlama3,        // low frequencies divided, between two bounds smoothly
    kYarn,          // similarly, by "YaRN" (2023), with scaled scores
    kFactors,       // each divided by one of `factors`, GGUF's rope_freqs.weight
    kProportional,  // leading pairs (i, i + D / 2) turn, a share of `part`; the others have
                    // frequency 0
  };
  Type type = Type::kDefault;
  double theta = 10000;
  double part = 1;  // share of a head's channels, or pairs, that turns, the leading ones
  double factor = 1;
  double original_positions = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  // llama3
  double beta_fast = 32, beta_slow = 1;              // yarn
  bool truncate = true;                              // its bounds are whole numbers
  double attention_factor = 1;                       // factor of cosines and sines
  std::vector<float> factors = {};

  bool operator==(const RopeConfig&) const = default;
};

// Reads the rope of layers of one kind ("full_attention", "sliding_attention"), in either spelling:
// rope_parameters, which may have a member for each kind, or rope_theta and rope_scaling. `theta`:
// the default. `part`: the default where a part of a head may turn; else all of it must. Throws
// Error(kInput) for an unsupported type.
RopeConfig read_rope(const ConfigReader& reader, const char* layer_kind, int max_positions,
                     double theta, std::optional<double> part = {});

// Natural logarithm to some units in the last place, with the same bits on every machine.
double natural_log(double x);

// [head_dim / 2], computed in floats like transformers.
std::vector<float> inverse_frequencies(const RopeConfig& rope, int head_dim);

// [positions, head_dim / 2] each: cosine and sine of float(position * inverse frequency), times the
// attention factor.
struct RopeTables {
  std::vector<float> cos, sin;
};
RopeTables rope_tables(const RopeConfig& rope, int head_dim, int positions);

}  // namespace split
