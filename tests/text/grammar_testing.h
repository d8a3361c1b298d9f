// Grammars of JSON alone, and schemas, of the tests of grammars.
#pragma once

#include "text/json/json_grammar.h"

namespace split {

inline Grammar json_object_grammar() {
  JsonRules rules;
  const JsonRules::Symbol text = rules.any_object();
  return rules.take(text);
}

struct SchemaGrammar {
  Grammar grammar;
  std::vector<std::string> loosened;
};
inline SchemaGrammar json_schema_grammar(const Json& schema, MemoryShare* memory = nullptr) {
  JsonRules rules(memory);
  SchemaGrammar made;
  const Grammar::Symbol text = schema_rule(rules, schema, memory, made.loosened);
  made.grammar = rules.take(text);
  return made;
}

inline Json parsed(std::string_view text) { return parse_json(text, 32, "a test"); }
inline Grammar schema(std::string_view text) { return json_schema_grammar(parsed(text)).grammar; }
// Keywords that are not held, as a header has them.
inline std::string loosened(std::string_view text) {
  std::string all;
  for (const std::string& one : json_schema_grammar(parsed(text)).loosened) {
    all += (all.empty() ? "" : ", ") + one;
  }
  return all;
}

}  // namespace split
