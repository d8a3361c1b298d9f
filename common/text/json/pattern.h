// A schema's regular expression (ECMA-262's, found anywhere in a text) as rules of strings, of
// whole characters. What is no regular language, or looks around itself, is refused.
#pragma once

#include <string_view>

#include "text/json/rules.h"

namespace split {

struct PatternRule {
  Grammar::Symbol text;  // behind the quote, without the one that ends it
  size_t least, most;    // characters; SIZE_MAX: any number
};
// Throws Error(kInput) for what is not known here, or takes more than there is.
PatternRule pattern_rule(JsonRules& rules, std::string_view pattern);
// The pattern of a format; empty: of one that is not held.
std::string_view pattern_of_format(std::string_view format);

}  // namespace split
