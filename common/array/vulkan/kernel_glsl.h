// A kernel of a schedule as GLSL. Sizes, strides, places and numbers are read when it runs, so that
// kernels of one structure are one pipeline: a step has some hundred kernels of some ten. Knows no
// Vulkan.
//
// The order of a sum is that of its shape and of the lanes of a workgroup: equal on every run.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "array/schedule.h"

namespace split::array {

struct Lanes {
  uint32_t group = 256;  // lanes of a workgroup, a power of two
  uint32_t side = 16;    // a workgroup that computes a tile of a product has this squared
};

// Where a buffer's elements are: from an element of a binding on, or of several in a row, each of
// `piece` elements.
struct Bound {
  uint32_t binding = 0, pieces = 1;
  int64_t offset = 0;
  DType type = DType::kF32;  // or I32 or I64, in which numbers are computed with
};
struct Bindings {
  uint32_t count = 1;  // number of words, too
  int64_t piece = 0;
  std::function<Bound(int)> of;
};
// A buffer that no schedule has: an index is told there that is outside of its table (one number
// that is 1 then, and the index).
inline constexpr int kFault = -1;

struct Dispatch {
  std::string text;
  std::vector<uint32_t> words;  // words of binding 0, from the first word of the push constants on
  std::array<uint32_t, 3> groups{1, 1, 1};
  uint64_t elements = 0, products = 0;  // its work: numbers read, multiply-adds
  bool wide = false;                    // it computes in I64
};

// Returns none if there is nothing to do. Throws Error(kDevice) for more elements than a kernel can
// count.
std::optional<Dispatch> dispatch_for(const Kernel& kernel, const Bindings& bindings,
                                     const Lanes& lanes);

}  // namespace split::array
