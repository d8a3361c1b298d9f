// Decides which nodes of a graph become one kernel: the rules of compile.h applied, in execution
// order. Internal to compile/.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "compile/compile.h"

namespace split {

// The nodes that become one step: a kernel with its epilogue, or a group of pointwise ops and
// reductions.
struct Unit {
  const Node* kernel = nullptr;     // matmul or attention; null for a group
  std::vector<const Node*> nodes;   // the pointwise ops and reductions, in order
  std::vector<const Node*> wanted;  // values that other units or the graph's outputs read
  int64_t rows = 0;
  int64_t columns = 0;
};

struct Units {
  std::vector<std::unique_ptr<Unit>> all;
  std::vector<const Unit*> order;
  std::map<const Node*, Unit*> unit_of;
};

// Rules 1 and 2.
Units fuse(const std::vector<NamedOutput>& outputs, const FuseRules& rules);
// Rules 3 to 7: sets what a Step names of its neighbours (join.cpp).
void join_steps(Program& program, const FuseRules& rules);

}  // namespace split
