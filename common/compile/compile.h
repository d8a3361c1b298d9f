// From a graph to a Program: order, fuse, plan. The rules read the kind of an op, never its name:
//   1. a pointwise op joins the kernel (marked EPILOGUE) or the group whose result only it uses;
//   2. a reduction over the last axis joins the pointwise work around it on the same rows;
//   3. the maker of an x that only matmuls read may become their prologue: the group before
//   them, or, of one, the last part of the attention, which merges its splits;
//   4. a matmul may rotate its result, if only a rotation reads that;
//   5. the makers of an attention's keys and values, matmuls and rotations, may store them;
//   6. a matmul may compute another matmul of its x that only its epilogue reads;
//   7. the matmuls that make the queries, keys and values of an attention may be one.
#pragma once

#include <string>
#include <vector>

#include "compile/program.h"
#include "tensor/tensor.h"

namespace split {

// The fusions that a device can do in one kernel; the device passes this to compile().
struct FuseRules {
  bool groups = true;     // pointwise ops and reductions on the same rows become one step
  bool epilogue = true;   // pointwise ops join a matmul's result
  bool prologue = false;  // the step that makes a matmul's x joins it
  bool kv_store = true;   // the makers of keys and values store them
  bool rotation = false;  // a matmul rotates its result
  bool twins = false;     // a matmul computes another that its epilogue reads
  bool siblings = false;  // queries, keys and values are made by one matmul
};

// Throws Error(kShape) for a graph that no device runs (an output that is a bare leaf).
Program compile(std::string name, const std::vector<NamedOutput>& outputs, const FuseRules& rules);

// Decides which steps wait, and gives each temporary its offset, so that two of one lifetime never
// overlap, also where joined steps become one kernel and where steps run in parallel. Offsets are
// multiples of `alignment`.
void plan_arena(Program& program, size_t alignment);

}  // namespace split
