#include "text/json/json_grammar.h"

#include "text/json/schema_builder.h"

namespace split {
namespace {

// The rule of a schema, or of a tool's arguments; adds the loosened keywords.
Grammar::Symbol built(JsonRules& rules, const Json& schema, MemoryShare* memory,
                      std::vector<std::string>& loosened, bool of_call) {
  SchemaBuilder builder(rules, memory, of_call);
  const Grammar::Symbol made = of_call ? builder.arguments(schema) : builder.schema(schema);
  loosened = builder.loosened();
  return made;
}

}  // namespace

Grammar::Symbol schema_rule(JsonRules& rules, const Json& schema, MemoryShare* memory,
                            std::vector<std::string>& loosened) {
  return built(rules, schema, memory, loosened, false);
}

Grammar::Symbol arguments_rule(JsonRules& rules, const Json& schema, MemoryShare* memory,
                               std::vector<std::string>& loosened) {
  return built(rules, schema, memory, loosened, true);
}

std::optional<std::vector<ArgumentRule>> argument_rules(JsonRules& rules, const Json& schema,
                                                        MemoryShare* memory,
                                                        std::vector<std::string>& loosened) {
  SchemaBuilder builder(rules, memory, true);
  auto made = builder.argument_list(schema);
  loosened = builder.loosened();
  return made;
}

}  // namespace split
