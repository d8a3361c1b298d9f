// Decides before a text runs: what of the model comes to this machine beside texts. Plain numbers
// go in; a decision with its reason comes out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace split::edge {

// A head that multiplies more than so many blocks is cheaper on the cloud.
inline constexpr double kLargeHead = 3;

// Steps in which weights can come, each with its bytes: with the head, and without it.
struct ComingInput {
  std::vector<uint64_t> steps, headless;
  double head_blocks = 0;    // the head's multiplications, in those of a block
  uint64_t max_weights = 0;  // bytes that somebody allows, and that the memory grants
  uint64_t granted = 0;
};

enum class Limit : uint8_t { kMaxWeights, kMemory };

struct Coming {
  size_t steps = 0;                  // so many come, from the first on
  bool head = true;                  // they are those with the head
  bool whole = false;                // they are all
  uint64_t bytes = 0, all = 0;       // of them, and of the whole model
  Limit limit = Limit::kMaxWeights;  // the lower one, and its bytes
  uint64_t most = 0;
};

// As many as fit: all of the model, else without the head where the cloud computes that cheaper.
Coming what_comes(const ComingInput& in);

}  // namespace split::edge
