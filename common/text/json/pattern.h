// A schema's regular expression (ECMA-262's, found anywhere in a text) as rules of strings, of
// whole characters. Refuses expressions that are not regular, or look around.
#pragma once

#include <string_view>

#include "text/json/rules.h"

namespace split {

struct PatternRule {
  Grammar::Symbol text;  // behind the quote, without the one that ends it
  size_t least, most;    // characters; SIZE_MAX: any number
};
// Throws Error(kInput) for unknown syntax, or a pattern that is too large.
PatternRule pattern_rule(JsonRules& rules, std::string_view pattern);
// The pattern of a format; empty: the format is not held.
std::string_view pattern_of_format(std::string_view format);

}  // namespace split
