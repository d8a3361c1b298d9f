// Reads config.json, one field at a time, each checked: what all models' files are written with.
// Sizes are capped so that no product of two overflows and no allocation is absurd.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tensor/op.h"

namespace split {

inline constexpr int kMaxSize = 1 << 20;   // of channels, heads, positions
inline constexpr int kMaxVocab = 1 << 24;  // tokens are floats' whole numbers somewhere

// A name that transformers has for an op of the table.
struct Activation {
  std::string_view name;
  Op op;
};
std::span<const Activation> activations();

// Throws Error(kInput), "[config.json] FIELD: what was expected, what was there".
class ConfigReader {
 public:
  explicit ConfigReader(const Json& json) : json_(json) {}

  // Whether there is one that is not null.
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
  // A token or a list of them; none where there is none or it is -1.
  std::vector<int> tokens(const char* key) const;

  // Whether a classifier stands on the model; one of pairs, whose one label is a score: throws
  // where it has another number of labels.
  bool classifies() const;
  bool ranks() const;

  // Throws where weights are packed by other tools.
  void refuse_packed_weights() const;
  [[noreturn]] static void refuse(const std::string& key, const std::string& why);
  static std::string shown(const Json& value);

 private:
  const Json& json_;
};

// Positions that are served of those that a model was made for: so many as are asked for, else
// kDefaultContext or all. Throws Error(kInput) for more than there are.
inline constexpr int kDefaultContext = 32768;
int served_context(int max_positions, std::optional<int> asked);

}  // namespace split
