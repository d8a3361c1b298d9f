// Where what lives for a while lies in one memory: a Program's temporaries, a schedule's buffers
// and the values of a tape.
#pragma once

#include <cstddef>
#include <span>

namespace split {

struct Life {
  size_t first = 0, last = 0;  // times, both of its life
  size_t size = 0;
  size_t at = 0;  // where it lies
};

// Gives each, in their order, the first place where nothing lies that lives at a time of its own.
// Returns the size of all together.
size_t place(std::span<Life> lives);

}  // namespace split
