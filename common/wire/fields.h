// Readers of JSON input: one typed, range-checked reader for every field of every route.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace split::wire {

// One JSON object from outside, read field by field. Errors name the field; finish() refuses unread
// fields.
class Fields {
 public:
  static constexpr int kDepth = 16, kDeep = 64;  // kDeep: with schemas of tools
  // Throws Error(kInput) unless `json` is an object of at most `depth` levels and kMaxJsonBytes,
  // and Error(kBusy) if `memory`, which pays for it, has too little left.
  explicit Fields(std::string_view json, MemoryShare* memory = nullptr, int depth = kDepth);
  // Reads an object of these members.
  explicit Fields(Json::Object members);
  // Reads a part of a parsed document, which must outlive this.
  explicit Fields(const Json* object);
  ~Fields();
  Fields(const Fields&) = delete;
  Fields& operator=(const Fields&) = delete;

  bool has(std::string_view key);  // present and not null
  int64_t integer(std::string_view key, int64_t low, int64_t high);
  int64_t integer_or(std::string_view key, int64_t low, int64_t high, int64_t otherwise);
  double number_or(std::string_view key, double low, double high, double otherwise);
  bool boolean_or(std::string_view key, bool otherwise);
  std::string text(std::string_view key);  // the share pays for the copy
  std::string text_or(std::string_view key, std::string_view otherwise);
  // Returns whole numbers in [low, high], at most `limit`.
  std::vector<int32_t> integers(std::string_view key, int32_t low, int32_t high, size_t limit);
  static std::vector<int32_t> integers_of(const Json& list, std::string_view key, int32_t low,
                                          int32_t high, size_t limit);
  // Returns a string or a list of strings, each of at most `bytes`.
  std::vector<std::string> texts(std::string_view key, size_t limit, size_t bytes = SIZE_MAX);
  const Json& raw(std::string_view key);
  // Returns the field, moved out if the object is this one's own.
  Json take(std::string_view key);
  // Marks a field as known and unused.
  void ignore(std::string_view key);
  // Calls `found` with each unread field.
  void each_unread(const std::function<void(const std::string&, const Json&)>& found) const;
  void finish() const;
  [[noreturn]] static void refuse(std::string_view key, const std::string& expected);
  [[noreturn]] static void refuse_unknown(const std::string& key);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// finish() for a query's fields: refuses unknown and duplicate ones.
void check_query(std::span<const std::pair<std::string, std::string>> query,
                 std::initializer_list<std::string_view> known);

// The most that any route needs. Parsed it takes up to 30 times as much.
inline constexpr size_t kMaxJsonBytes = 8 << 20;

// Reads "cache_salt" (vLLM's name), the scope in which texts share rows. Empty: none.
std::string read_salt(Fields& fields);

}  // namespace split::wire
