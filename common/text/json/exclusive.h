// Whether the schemas of a oneOf are known to have no value in common: by their types, their listed
// values, or a member that both require. Knows no grammar.
#pragma once

#include <span>
#include <string>

#include "base/json.h"

namespace split {

// Compares each two of them. References lead into `root`. Returns false if that takes more than the
// `steps` that are left.
bool exclude_each_other(const Json& root, std::span<const Json> schemas, int64_t& steps);

// The part of `root` at "#/a/b"; null if there is nothing, or no steps are left to find it.
const Json* find_reference(const Json& root, const std::string& path, int64_t& steps);

}  // namespace split
