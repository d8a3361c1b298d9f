// Frees what a string or container holds: its memory too, which assigning an empty one keeps.
#pragma once

#include <utility>

namespace split {

template <typename T>
void release(T& held) {
  T empty;
  std::swap(held, empty);
}

}  // namespace split
