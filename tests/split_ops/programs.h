// The goldens' short programs, by name.
#pragma once

#include <functional>

#include "tests/split_ops/operations.h"

namespace split::ops {

std::map<std::string, Function> programs();

}  // namespace split::ops
