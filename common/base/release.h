// Empties a string or container and frees its memory, which assigning an empty one would keep.
#pragma once

#include <utility>

namespace split {

template <typename T>
void release(T& held) {
  T empty;
  std::swap(held, empty);
}

}  // namespace split
