// A Program of fewer steps, by what its steps name of their neighbours: matmuls that make an
// attention's queries, keys and values become one matmul, and so does a matmul with its twin.
// Their matrices become one, whose columns keep their order of sums, and so their bits.
#pragma once

#include <map>
#include <vector>

#include "compile/compile.h"

namespace split::webgpu {

inline constexpr FuseRules kFuseRules{.kv_store = false, .twins = true, .siblings = true};

// The weights that lie in one buffer: one behind the other, or if by_turns, a row of each in turn.
struct LaidTogether {
  std::vector<int> slots;
  bool by_turns = false;
};

struct MergedProgram {
  Program program;
  std::map<int, LaidTogether> weights;  // by the slot that stands for them

  // Makes the slot that stands for these.
  int lay_together(const std::vector<int>& slots, bool by_turns = false);
};
MergedProgram merge_products(const Program& program);

// How the epilogue of a matmul reads a product: its own, or that of its twin.
inline constexpr int64_t kTwinProduct = 1;  // Access::first
bool has_twin(const Step& matmul);

}  // namespace split::webgpu
