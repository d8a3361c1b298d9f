#include "base/error.h"

namespace split {

void check_failed(const char* file, int line, const char* condition) {
  throw std::logic_error(cat("bug: ", file, ":", line, ": CHECK(", condition, ") failed"));
}

}  // namespace split
