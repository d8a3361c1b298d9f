#include "text/json/exclusive.h"

#include <algorithm>
#include <string_view>

namespace split {
namespace {

constexpr int kMostHops = 16;  // from one reference to the next
constexpr int kMostTold = 32;  // members that differ between two schemas

// Bits of the types that a value may have.
constexpr uint8_t kAllKinds = 63, kObjectKind = 1;
constexpr std::string_view kKindNames[] = {"object", "array",   "string",
                                           "number", "boolean", "null"};

uint8_t kind_named(std::string_view type) {
  if (type == "integer") type = "number";
  const auto at = std::ranges::find(kKindNames, type);
  return at == std::end(kKindNames) ? kAllKinds
                                    : static_cast<uint8_t>(1 << (at - std::begin(kKindNames)));
}

uint8_t kind_of(const Json& value) {
  return kind_named(value.is_object()    ? "object"
                    : value.is_array()   ? "array"
                    : value.is_string()  ? "string"
                    : value.is_number()  ? "number"
                    : value.is_boolean() ? "boolean"
                                         : "null");
}

class Comparison {
 public:
  Comparison(const Json& root, int64_t& steps) : root_(root), steps_(steps) {}

  bool apart(const Json& one, const Json& other, int depth = 0) {
    if (--steps_ < 0 || depth > kMostTold) return false;
    const Json &a = behind(one), &b = behind(other);
    if (!a.is_object() || !b.is_object()) return false;
    const std::span<const Json> of_a = listed(a), of_b = listed(b);
    if (!spend(a.size() + b.size() + of_a.size() + of_b.size())) return false;
    if ((kinds(a) & kinds(b)) == 0) return true;
    if (!of_a.empty() && !of_b.empty()) {
      if (!spend(of_a.size() * of_b.size())) return false;
      return std::ranges::none_of(
          of_a, [&](const Json& value) { return std::ranges::find(of_b, value) != of_b.end(); });
    }
    return kinds(a) == kObjectKind && kinds(b) == kObjectKind && tell_apart(a, b, depth);
  }

 private:
  bool spend(size_t steps) { return (steps_ -= static_cast<int64_t>(steps)) >= 0; }
  // Whether a member that both require always differs.
  bool tell_apart(const Json& a, const Json& b, int depth) {
    const Json *needed = a.find("required"), *of_b = b.find("required");
    const Json *in_a = a.find("properties"), *in_b = b.find("properties");
    for (const Json* one : {needed, of_b, in_a, in_b}) {
      if (one == nullptr) return false;
    }
    const size_t each = of_b->size() + in_a->size() + in_b->size();
    return std::ranges::any_of(*needed, [&](const Json& name) {
      if (!spend(each)) return false;
      if (!name.is_string() || std::ranges::find(*of_b, name) == of_b->end()) return false;
      const Json *left = in_a->find(name.text()), *right = in_b->find(name.text());
      return left != nullptr && right != nullptr && apart(*left, *right, depth + 1);
    });
  }

  const Json& behind(const Json& schema) const {
    const Json* at = &schema;
    for (int i = 0; i < kMostHops; ++i) {
      const Json* const path = at->find("$ref");
      const Json* const found = path == nullptr || !path->is_string()
                                    ? nullptr
                                    : find_reference(root_, path->text(), steps_);
      if (found == nullptr) break;
      at = found;
    }
    return *at;
  }

  static std::span<const Json> listed(const Json& schema) {
    if (const Json* const fixed = schema.find("const")) return {fixed, 1};
    const Json* const values = schema.find("enum");
    if (values == nullptr || !values->is_array()) return {};
    return {values->begin(), values->end()};
  }

  static uint8_t kinds(const Json& schema) {
    uint8_t kinds = 0;
    for (const Json& value : listed(schema)) kinds |= kind_of(value);
    if (kinds != 0) return kinds;
    const Json* const type = schema.find("type");
    if (type == nullptr) return kAllKinds;
    if (type->is_string()) return kind_named(type->text());
    for (const Json& one : *type) {
      kinds |= kind_named(one.is_string() ? std::string_view(one.text()) : "");
    }
    return kinds;
  }

  const Json& root_;
  int64_t& steps_;
};

}  // namespace

bool exclude_each_other(const Json& root, std::span<const Json> schemas, int64_t& steps) {
  Comparison comparison(root, steps);
  for (size_t i = 0; i < schemas.size(); ++i) {
    for (size_t k = i + 1; k < schemas.size(); ++k) {
      if (!comparison.apart(schemas[i], schemas[k])) return false;
    }
  }
  return true;
}

const Json* find_reference(const Json& root, const std::string& path, int64_t& steps) {
  const Json* found = &root;
  for (size_t at = 1; at < path.size() && found != nullptr;) {
    const size_t end = std::min(path.find('/', at + 1), path.size());
    if ((steps -= static_cast<int64_t>(found->members().size())) < 0) return nullptr;
    found = found->find(path.substr(at + 1, end - at - 1));
    at = end;
  }
  return found;
}

}  // namespace split
