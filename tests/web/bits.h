// The bits that a native edge and a tab must agree on.
#pragma once

#include <string>

namespace split::test {

// A line for each format of weights: its name, and the SHA-256 of a small model's logits; and one
// that says whether exact1 is kept, or at which step it is not.
std::string bits_of_all_formats();

}  // namespace split::test
