// Compiled without fused multiply-adds that the source does not have.
#include "models/rope.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace split {
namespace {

// --- Elementary functions in double, to some units in the last place

constexpr double kLn2High = 6.93147180369123816490e-01;  // 33 bits of ln 2
constexpr double kLn2Low = 1.90821492927058770002e-10;

}  // namespace

double natural_log(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < 0.70710678118654752440) m *= 2, --exponent;
  // ln m = 2 atanh s.
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 0;
  for (int n = 25; n > 0; n -= 2) sum = sum * square + 1.0 / n;
  return exponent * kLn2High + (2 * s * sum + exponent * kLn2Low);
}

namespace {

double exponential(double x) {
  const double k = std::nearbyint(x / 0.69314718055994530942);
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1;
  for (int n = 18; n > 0; --n) sum = sum * (r / n) + 1;
  return std::ldexp(sum, static_cast<int>(k));
}

double power(double base, double exponent) { return exponential(exponent * natural_log(base)); }

struct Turned {
  double cos, sin;
};
// Takes angles up to a million: the rest after whole quarters is exact to 1e-21.
Turned turned(double angle) {
  constexpr double kQuarterHigh = 1.57079632673412561417e+00;  // 33 bits of pi / 2
  constexpr double kQuarterLow = 6.07710050650619224932e-11;
  const double k = std::nearbyint(angle / 1.57079632679489661923);
  const double r = (angle - k * kQuarterHigh) - k * kQuarterLow, square = r * r;
  double cos = 1, sin = 1;
  for (int n = 20; n > 0; n -= 2) cos = 1 - cos * square / (n * (n - 1));
  for (int n = 21; n > 1; n -= 2) sin = 1 - sin * square / (n * (n - 1));
  sin *= r;
  switch (static_cast<int64_t>(k) & 3) {
    case 0:
      return {cos, sin};
    case 1:
      return {-sin, cos};
    case 2:
      return {-cos, -sin};
    default:
      return {sin, -cos};
  }
}

// --- Settings

constexpr double kTwoPi = 6.28318530717958647693;
constexpr double kMost = 1e12;

constexpr std::pair<std::string_view, RopeConfig::Type> kTypes[] = {
    {"default", RopeConfig::Type::kDefault}, {"linear", RopeConfig::Type::kLinear},
    {"llama3", RopeConfig::Type::kLlama3},   {"yarn", RopeConfig::Type::kYarn},
    {"factors", RopeConfig::Type::kFactors}, {"proportional", RopeConfig::Type::kProportional}};

RopeConfig::Type type_of(const ConfigReader& reader, const std::string& where) {
  const std::string name = reader.text_or("rope_type", reader.text_or("type", "default").c_str());
  std::string known;
  for (const auto& [known_name, type] : kTypes) {
    if (name == known_name) return type;
    if (type >= RopeConfig::Type::kFactors) continue;  // from GGUF files, or of Gemma 4 alone
    known += cat(known.empty() ? "" : type == RopeConfig::Type::kYarn ? " or " : ", ", known_name);
  }
  reader.refuse(where + ".rope_type", cat("expected ", known, ", got ", split::shown(name)));
}

double yarn_scale(double factor, double scale) {
  return factor <= 1 ? 1 : 0.1 * scale * natural_log(factor) + 1;
}

double yarn_attention(const ConfigReader& reader, double factor) {
  if (reader.has("attention_factor")) return reader.number("attention_factor", 1e-6, 1e6);
  if (reader.has("mscale") && reader.has("mscale_all_dim")) {
    return yarn_scale(factor, reader.number("mscale", 0, 1e6)) /
           yarn_scale(factor, reader.number("mscale_all_dim", 0, 1e6));
  }
  return yarn_scale(factor, 1);
}

// Reads an object with a type and its settings.
RopeConfig read_scaling(const Json& json, const std::string& where, int max_positions, double theta,
                        std::optional<double> part) {
  const ConfigReader reader(json);
  RopeConfig rope;
  rope.type = type_of(reader, where);
  rope.theta = reader.number_or("rope_theta", 1, kMost, theta);
  rope.part = reader.number_or("partial_rotary_factor", 0, 1, part.value_or(1));
  if (rope.type == RopeConfig::Type::kProportional) {
    if (part) reader.refuse(where + ".rope_type", "expected one for leading channels");
    rope.factor = reader.number_or("factor", 1e-6, kMost, 1);
    return rope;
  }
  if (!part && rope.part != 1) {
    reader.refuse(where + ".partial_rotary_factor", "expected 1: all channels of a head turn");
  }
  if (rope.type == RopeConfig::Type::kDefault) return rope;
  if (rope.type == RopeConfig::Type::kFactors) {
    if (!reader.has("factors") || !json["factors"].is_array()) {
      reader.refuse(where + ".factors", "expected a list of numbers");
    }
    for (const Json& factor : json["factors"]) {
      const auto value = factor.get<float>();
      if (!(value > 1e-6f && value < 1e9f)) {
        reader.refuse(where + ".factors", cat("expected positive numbers, got ", value));
      }
      rope.factors.push_back(value);
    }
    return rope;
  }
  rope.factor = reader.number("factor", 1e-6, kMost);
  if (rope.type == RopeConfig::Type::kLinear) return rope;
  const char* const original = "original_max_position_embeddings";
  rope.original_positions = rope.type == RopeConfig::Type::kLlama3
                                ? reader.number(original, 1, kMost)
                                : reader.number_or(original, 1, kMost, max_positions);
  if (rope.type == RopeConfig::Type::kLlama3) {
    rope.low_freq_factor = reader.number("low_freq_factor", 1e-6, 1e6);
    rope.high_freq_factor = reader.number("high_freq_factor", 1e-6, 1e6);
    if (rope.high_freq_factor <= rope.low_freq_factor) {
      reader.refuse(where + ".high_freq_factor", "expected more than low_freq_factor");
    }
    return rope;
  }
  rope.beta_fast = reader.number_or("beta_fast", 1e-6, 1e6, 32);
  rope.beta_slow = reader.number_or("beta_slow", 1e-6, 1e6, 1);
  rope.truncate = reader.boolean_or("truncate", true);
  rope.attention_factor = yarn_attention(reader, rope.factor);
  return rope;
}

// Returns the start or the end of yarn's ramp over a row of `dim` channels.
double yarn_bound(const RopeConfig& rope, double turns, int dim) {
  return dim * natural_log(rope.original_positions / (turns * kTwoPi)) /
         (2 * natural_log(rope.theta));
}

float llama3_frequency(const RopeConfig& rope, float frequency) {
  const auto factor = static_cast<float>(rope.factor);
  const auto original = static_cast<float>(rope.original_positions);
  const auto low = static_cast<float>(rope.low_freq_factor);
  const auto high = static_cast<float>(rope.high_freq_factor);
  const float length = static_cast<float>(kTwoPi) / frequency;
  if (length < original / high) return frequency;
  if (length > original / low) return frequency / factor;
  const float smooth = (original / length - low) / (high - low);
  return (1 - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

RopeConfig read_rope(const ConfigReader& reader, const char* layer_kind, int max_positions,
                     double theta, std::optional<double> part) {
  // A theta beside rope_parameters is their default.
  const double own = reader.number_or("rope_theta", 1, kMost, theta);
  if (reader.has("rope_parameters")) {
    const Json& all = reader["rope_parameters"];
    if (!all.is_object()) reader.refuse("rope_parameters", "expected an object");
    const Json* of_kind = all.find(layer_kind);
    const bool kinds = all.contains("full_attention") || all.contains("sliding_attention");
    if (kinds && (of_kind == nullptr || !of_kind->is_object())) {
      reader.refuse("rope_parameters", cat("expected an object ", layer_kind));
    }
    return read_scaling(kinds ? *of_kind : all, "rope_parameters", max_positions, own, part);
  }
  if (reader.has("rope_scaling")) {
    const Json& scaling = reader["rope_scaling"];
    if (!scaling.is_object()) reader.refuse("rope_scaling", "expected an object or null");
    return read_scaling(scaling, "rope_scaling", max_positions, own, part);
  }
  RopeConfig rope;
  rope.theta = own;
  rope.part = part.value_or(1);
  return rope;
}

std::vector<float> inverse_frequencies(const RopeConfig& rope, int head_dim) {
  const int half = head_dim / 2;
  double low = 0, high = 0;
  if (rope.type == RopeConfig::Type::kYarn) {
    low = yarn_bound(rope, rope.beta_fast, head_dim);
    high = yarn_bound(rope, rope.beta_slow, head_dim);
    if (rope.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0), high = std::min(high, head_dim - 1.0);
    if (low == high) high += 0.001;
  }
  std::vector<float> all;
  for (int i = 0; i < half; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
    const auto wave = static_cast<float>(power(rope.theta, double{exponent}));
    float frequency = 1.0f / wave;
    const auto factor = static_cast<float>(rope.factor);
    switch (rope.type) {
      case RopeConfig::Type::kDefault:
        break;
      case RopeConfig::Type::kLinear:
        frequency /= factor;
        break;
      case RopeConfig::Type::kLlama3:
        frequency = llama3_frequency(rope, frequency);
        break;
      case RopeConfig::Type::kYarn: {
        const float ramp =
            (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
        const float kept = 1 - std::clamp(ramp, 0.0f, 1.0f);
        frequency = 1.0f / (factor * wave) * (1 - kept) + frequency * kept;
        break;
      }
      case RopeConfig::Type::kFactors:
        CHECK(rope.factors.size() == static_cast<size_t>(half));
        frequency /= rope.factors[static_cast<size_t>(i)];
        break;
      case RopeConfig::Type::kProportional:
        frequency = i < static_cast<int>(rope.part * half) ? frequency / factor : 0;
        break;
    }
    all.push_back(frequency);
  }
  return all;
}

RopeTables rope_tables(const RopeConfig& rope, int head_dim, int positions) {
  const std::vector<float> frequencies = inverse_frequencies(rope, head_dim);
  const auto scale = static_cast<float>(rope.attention_factor);
  RopeTables tables;
  const size_t count = static_cast<size_t>(positions) * frequencies.size();
  tables.cos.reserve(count), tables.sin.reserve(count);
  for (int position = 0; position < positions; ++position) {
    for (const float frequency : frequencies) {
      const auto [cos, sin] = turned(double{static_cast<float>(position) * frequency});
      tables.cos.push_back(static_cast<float>(cos) * scale);
      tables.sin.push_back(static_cast<float>(sin) * scale);
    }
  }
  return tables;
}

}  // namespace split
