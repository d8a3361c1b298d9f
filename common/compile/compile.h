// From a graph to a Program: order, fuse, plan. The rules read the kind of an op, never its name:
//   1. a pointwise op joins the kernel (marked EPILOGUE) or the group whose result only it uses;
//   2. a reduction over the last axis joins the pointwise work around it on the same rows;
//   3. what makes the x of matmuls that alone read it may become their prologue: the group before
//      them, or, of one, the last part of the attention, which merges its splits;
//   4. a matmul may rotate what it makes, where a rotation alone reads that;
//   5. what makes the keys and values of an attention behind it, matmuls and rotations, may store
//      them;
//   6. a matmul may make what its epilogue alone reads of another matmul of the same x;
//   7. the matmuls that make the queries, keys and values of an attention may be one.
#pragma once

#include <string>
#include <vector>

#include "compile/program.h"
#include "tensor/tensor.h"

namespace split {

// The fusions that a device can take in one kernel; the device hands this to compile().
struct FuseRules {
  bool groups = true;     // pointwise ops and reductions on the same rows become one step
  bool epilogue = true;   // pointwise ops join a matmul's result
  bool prologue = false;  // the step that makes a matmul's x joins it
  bool kv_store = true;   // what makes keys and values stores them
  bool rotation = false;  // a matmul rotates what it makes
  bool twins = false;     // a matmul makes what its epilogue reads of another
  bool siblings = false;  // queries, keys and values are made by one matmul
};

// Throws Error(kShape) for a graph no device runs (an output that is a bare leaf).
Program compile(std::string name, const std::vector<NamedOutput>& outputs, const FuseRules& rules);

// Says which steps wait, and gives each temporary its offset, so that two that live at once never
// overlap, also where steps that join become one kernel and where steps run beside each other.
// Offsets are multiples of `alignment`.
void plan_arena(Program& program, size_t alignment);

}  // namespace split
