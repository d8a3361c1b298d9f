// The reference page of the tensor library's operations.
#pragma once

#include <string>

#include "tests/split_ops/goldens.h"

namespace split::ops {

// One HTML file: of each operation that goldens have its row or its lines, types, how many cases,
// and a plot of forward and gradient where it is a function of one number, drawn by the CPU.
std::string reference_page(Goldens& goldens, const std::string& source);

}  // namespace split::ops
