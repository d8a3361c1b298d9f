#include "wire/fields.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/resources/memory_budget.h"

namespace split::wire {

struct Fields::State {
  Json document;                 // if it was parsed here
  const Json* object = nullptr;  // the object to read
  std::set<std::string, std::less<>> known;
  MemoryShare* memory = nullptr;
};

Fields::Fields(std::string_view json, MemoryShare* memory, int depth)
    : state_(std::make_unique<State>()) {
  if (json.size() > kMaxJsonBytes) {
    throw Error(ErrorKind::kInput, cat("the body: expected at most ", kMaxJsonBytes,
                                       " bytes of JSON, got ", json.size()));
  }
  state_->memory = memory;
  state_->document = parse_json(json, depth, "the body", memory);
  state_->object = &state_->document;
  if (!state_->object->is_object())
    throw Error(ErrorKind::kInput, "the body: expected a JSON object");
}

Fields::Fields(Json::Object members) : state_(std::make_unique<State>()) {
  state_->document = std::move(members);
  state_->object = &state_->document;
}

Fields::Fields(const Json* object) : state_(std::make_unique<State>()) {
  state_->object = object;
  if (!object->is_object())
    throw Error(ErrorKind::kInput, "the body: expected a JSON object inside a list");
}

Fields::~Fields() = default;

void Fields::refuse(std::string_view key, const std::string& expected) {
  throw Error(ErrorKind::kInput, cat("'", key, "': ", expected), std::string(key));
}

bool Fields::has(std::string_view key) {
  state_->known.emplace(key);
  const Json* found = state_->object->find(key);
  return found != nullptr && !found->is_null();
}

const Json& Fields::raw(std::string_view key) {
  if (!has(key)) refuse(key, "is missing");
  return *state_->object->find(key);
}

Json Fields::take(std::string_view key) {
  const Json& value = raw(key);
  if (state_->object != &state_->document) return value;
  return std::move(state_->document[key]);
}

int64_t Fields::integer(std::string_view key, int64_t low, int64_t high) {
  const Json& value = raw(key);
  // Unsigned numbers beyond the signed range would wrap: they are out of any range here.
  const bool fits =
      value.is_number_integer() &&
      !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high) {
    refuse(key, cat("expected a whole number in ", low, "..", high));
  }
  return value.get<int64_t>();
}

int64_t Fields::integer_or(std::string_view key, int64_t low, int64_t high, int64_t otherwise) {
  return has(key) ? integer(key, low, high) : otherwise;
}

double Fields::number_or(std::string_view key, double low, double high, double otherwise) {
  if (!has(key)) return otherwise;
  const Json& value = raw(key);
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
    refuse(key, cat("expected a number in ", low, "..", high));
  }
  return value.get<double>();
}

bool Fields::boolean_or(std::string_view key, bool otherwise) {
  if (!has(key)) return otherwise;
  if (!raw(key).is_boolean()) refuse(key, "expected true or false");
  return raw(key).get<bool>();
}

std::string Fields::text(std::string_view key) {
  const Json& value = raw(key);
  if (!value.is_string()) refuse(key, "expected a string");
  if (state_->memory != nullptr) state_->memory->take(value.text().size());
  return value.text();
}

std::string Fields::text_or(std::string_view key, std::string_view otherwise) {
  return has(key) ? text(key) : std::string(otherwise);
}

std::vector<int32_t> Fields::integers(std::string_view key, int32_t low, int32_t high,
                                      size_t limit) {
  return integers_of(raw(key), key, low, high, limit);
}

std::vector<int32_t> Fields::integers_of(const Json& list, std::string_view key, int32_t low,
                                         int32_t high, size_t limit) {
  if (!list.is_array()) refuse(key, "expected a list of whole numbers");
  if (list.size() > limit)
    refuse(key, cat("expected at most ", limit, " numbers, got ", list.size()));
  std::vector<int32_t> result;
  result.reserve(list.size());
  for (const Json& value : list) {
    const bool fits =
        value.is_number_integer() &&
        !(value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
    if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high) {
      refuse(key, cat("expected whole numbers in ", low, "..", high));
    }
    result.push_back(static_cast<int32_t>(value.get<int64_t>()));
  }
  return result;
}

std::vector<std::string> Fields::texts(std::string_view key, size_t limit, size_t bytes) {
  const Json& value = raw(key);
  const std::string each = bytes == SIZE_MAX ? "" : cat(" of at most ", bytes, " bytes");
  const auto take = [&](const Json& one) {
    if (!one.is_string() || one.text().size() > bytes) refuse(key, cat("expected strings", each));
    if (state_->memory != nullptr) state_->memory->take(one.text().size());
    return one.text();
  };
  if (value.is_string()) return {take(value)};
  if (!value.is_array() || value.size() > limit) {
    refuse(key, cat("expected a string or a list of at most ", limit, " strings", each));
  }
  std::vector<std::string> result;
  for (const Json& item : value) result.push_back(take(item));
  return result;
}

void Fields::ignore(std::string_view key) { state_->known.emplace(key); }

void Fields::refuse_unknown(const std::string& key) {
  throw Error(ErrorKind::kInput, cat(shown(key), " is no field of this route"), key);
}

void Fields::each_unread(const std::function<void(const std::string&, const Json&)>& found) const {
  for (const auto& [key, value] : state_->object->members()) {
    if (state_->known.count(key) == 0) found(key, value);
  }
}

void Fields::finish() const {
  each_unread([](const std::string& key, const Json&) { refuse_unknown(key); });
}

void check_query(std::span<const std::pair<std::string, std::string>> query,
                 std::initializer_list<std::string_view> known) {
  std::set<std::string_view> seen;
  for (const auto& [key, value] : query) {
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw Error(ErrorKind::kInput, cat(shown(key), " is no field of this route's query"), key);
    }
    if (!seen.insert(key).second) Fields::refuse(key, "expected once");
  }
}

std::string read_salt(Fields& fields) {
  constexpr const char* kName = "cache_salt";
  constexpr size_t kMost = 128;
  if (!fields.has(kName)) return {};
  std::string salt = fields.text(kName);
  if (salt.empty() || salt.size() > kMost) {
    Fields::refuse(kName, cat("expected a text of 1..", kMost, " bytes, got ", salt.size()));
  }
  return salt;
}

}  // namespace split::wire
