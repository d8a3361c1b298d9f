// Makes rules of a JSON schema: its values (schema_builder.cpp), and objects and their members
// (schema_members.cpp). Counts what it makes, and collects loosened keywords. Knows no text.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/json/json_grammar.h"
#include "text/json/keywords.h"

namespace split {

class SchemaBuilder {
 public:
  using Sequence = JsonRules::Sequence;
  using Symbol = JsonRules::Symbol;

  static constexpr size_t kMostAlternatives = 512;  // a schema's enums, anyOfs and properties
  static constexpr size_t kMostText = 1 << 17;      // a name's or a value's bytes

  // `loose`: refuses nothing.
  SchemaBuilder(JsonRules& rules, MemoryShare* memory, bool loose)
      : rules_(rules), memory_(memory), loose_(loose) {}
  Symbol schema(const Json& schema) {
    root_ = &schema;
    return value(schema);
  }
  Symbol arguments(const Json& schema);
  std::optional<std::vector<ArgumentRule>> argument_list(const Json& schema);
  std::vector<std::string> loosened() const { return {loosened_.begin(), loosened_.end()}; }

 private:
  Sequence lit(std::string_view text) { return rules_.lit(text); }
  Symbol either(const std::vector<Sequence>& alternatives) { return rules_.either(alternatives); }
  Symbol values(std::span<const Json> schemas);
  Symbol array(const Json& schema);
  struct Member {
    std::string_view name;
    const Json* schema;
    bool described, required;
  };
  std::vector<Member> members(const Json& schema);
  Symbol properties(const Json& schema);
  const Json& object_of(const Json& schema);
  static bool takes_none(const Json& object);
  struct Texts {
    bool any = false;
    std::vector<std::string> listed;
  };
  void add_texts(const Json& schema, Texts& out, size_t& left);
  static bool describes_others(const Json& schema);
  Symbol record(const Json& schema, const Json* extra);
  Symbol value(const Json& schema);
  Symbol held(const Json& schema);
  template <typename Make>
  bool done(const Make& make);
  template <typename Make>
  Symbol or_any(const Make& make, Symbol (JsonRules::*any)());
  Symbol listed(const Json& schema);
  Symbol one_of_types(const Json& schema);
  Symbol of_type(const Json& schema, std::string_view type);
  Symbol text(const Json& schema);
  void loosen_texts(const Json& schema);
  Symbol decimals(const Json& schema);
  Symbol integers(const Json& schema);
  Symbol reference(const std::string& path);
  std::string_view says_all(const Json& schema);
  void loosen(std::string_view key);
  std::pair<int64_t, std::optional<int64_t>> lengths(const Json& schema, const char* least,
                                                     const char* most, int64_t limit);
  std::optional<int64_t> bound(const Json& schema, bool low);
  void count(size_t alternatives) {
    if ((alternatives_ += alternatives) > kMostAlternatives) {
      refuse_schema(
          cat("properties and alternatives: expected at most ", kMostAlternatives, " in all"));
    }
  }

  // Pays for looking at a schema.
  void spend(const Json& schema);

  JsonRules& rules_;
  MemoryShare* memory_;
  const bool loose_;
  const Json* root_ = nullptr;
  std::set<std::string, std::less<>> loosened_;
  size_t alternatives_ = 0;
  size_t depth_ = 0;                         // schemas around this place
  std::vector<std::string> around_ = {"#"};  // references around this place
  std::map<std::string, Symbol> referred_;
};

// Calls `make`; returns false if it is refused and `loose` allows that.
template <typename Make>
bool SchemaBuilder::done(const Make& make) {
  const size_t around = around_.size();
  try {
    make();
    return true;
  } catch (const Error& error) {
    if (!loose_ || error.kind() != ErrorKind::kInput) throw;
    around_.resize(around);
    loosen("schema");
    return false;
  }
}

// Returns what `make` returns, or any value.
template <typename Make>
SchemaBuilder::Symbol SchemaBuilder::or_any(const Make& make, Symbol (JsonRules::*any)()) {
  Symbol symbol;
  return done([&] { symbol = make(); }) ? symbol : (rules_.*any)();
}

}  // namespace split
