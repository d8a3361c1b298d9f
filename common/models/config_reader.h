// Reads config.json, one checked field at a time, for all models' files. Sizes are capped so that
// no product of two overflows and no allocation is absurd.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/op.h"

namespace split {

inline constexpr int kMaxSize = 1 << 20;   // limit of channels, heads, positions
inline constexpr int kMaxVocab = 1 << 24;  // tokens are stored in floats at times

// A name in transformers for an op of the table.
struct Activation {
  std::string_view name;
  Op op;
};
std::span<const Activation> activations();

// Throws Error(kInput), "[config.json] FIELD: what was expected, what was there".
class ConfigReader {
 public:
  explicit ConfigReader(const Json& json) : json_(json) {}

  // Whether the field is there and not null.
  bool has(const char* key) const { return json_.contains(key) && !json_[key].is_null(); }
  const Json& operator[](const char* key) const { return json_[key]; }

  int integer(const char* key, int low, int high) const;
  int integer_or(const char* key, int low, int high, int otherwise) const {
    return has(key) ? integer(key, low, high) : otherwise;
  }
  bool boolean_or(const char* key, bool otherwise) const;
  double number(const char* key, double low, double high) const;
  double number_or(const char* key, double low, double high, double otherwise) const {
    return has(key) ? number(key, low, high) : otherwise;
  }
  std::string text_or(const char* key, const char* otherwise) const;
  Op activation_or(const char* key, const char* otherwise) const;
  // A token or a list of them; empty if it is missing or -1.
  std::vector<int> tokens(const char* key) const;
  // A list of one text for each of so many blocks: whether it is `yes`, else it is `no`.
  std::vector<bool> kinds(const char* key, int blocks, const char* yes, const char* no) const;

  // Whether a classifier stands on the model; and whether it ranks pairs, by one label: throws for
  // another number of labels.
  bool classifies() const;
  bool ranks() const;

  // Throws if weights are packed by other tools.
  void refuse_packed_weights() const;
  [[noreturn]] static void refuse(const std::string& key, const std::string& why);
  static std::string shown(const Json& value);

 private:
  const Json& json_;
};

// Positions that are served, out of the model's: `asked`, else at most kDefaultContext. Throws
// Error(kInput) for more than the model has.
inline constexpr int kDefaultContext = 32768;
int served_context(int max_positions, std::optional<int> asked);

}  // namespace split
