// Where the temporaries of a schedule lie in one arena: each as long as somebody reads it, beside
// what a kernel needs for itself alone. Knows no device.
#pragma once

#include <functional>
#include <vector>

#include "array/schedule.h"

namespace split::array {

inline constexpr size_t kLine = 16;  // floats of a cache line

// Floats up to a whole line.
size_t whole_lines(size_t floats);

struct Layout {
  // `workspace`: floats that a kernel needs beside its operands and results.
  using Workspace = std::function<size_t(const Kernel&)>;
  Layout(const Schedule& schedule, const Workspace& workspace);

  std::vector<size_t> at;  // places of temporaries, by buffer, in floats
  std::vector<bool> placed;
  std::vector<size_t> workspaces;  // places of kernels' workspaces
  size_t floats = 0;
};

}  // namespace split::array
