// Which nodes of a graph become one kernel: the rules of compile.h applied, in execution order.
// Internal to compile/.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "compile/compile.h"

namespace split {

// What becomes one step: a kernel with its epilogue, or a group of pointwise ops and reductions.
struct Unit {
  const Node* kernel = nullptr;     // matmul or attention; null for a group
  std::vector<const Node*> nodes;   // the pointwise ops and reductions, in order
  std::vector<const Node*> wanted;  // values that other units or the graph's outputs read
  int64_t rows = 0;
  int64_t columns = 0;
  const Unit* prologue = nullptr;  // of a matmul: the group that makes its x
  const Unit* prologue_of = nullptr;
};

struct Units {
  std::vector<std::unique_ptr<Unit>> all;
  std::vector<const Unit*> order;
  std::map<const Node*, Unit*> unit_of;
};

Units fuse(const std::vector<NamedOutput>& outputs, const FuseRules& rules);

}  // namespace split
