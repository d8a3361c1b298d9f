// A tape: values of rows, each of them loaded, or an op of values before it. How a load reads is
// its own affair: rows of a step (program.h), or any axes (array/).
#pragma once

#include <algorithm>
#include <vector>

#include "compile/arena.h"
#include "tensor/op.h"
#include "tensor/shape.h"

namespace split {

struct TapeOp {
  Op op = Op::k_input;  // loads
  DType dtype = DType::kF32;
  int x = -1, z = -1, c = -1;
  bool full = false;     // an element of all rows; else one number a row
  bool uniform = false;  // one number
  bool loads() const { return op == Op::k_input; }
  bool reduces() const { return op_info(op).kind == OpKind::kReduce; }
  bool operator==(const TapeOp&) const = default;
};

struct TapeOutput {
  int value = -1;
  int slot = -1;
  bool operator==(const TapeOutput&) const = default;
};

template <typename Load>
struct BasicTape {
  struct Value : TapeOp {
    Load load = {};
    bool operator==(const Value&) const = default;
  };
  std::vector<Value> values;
  std::vector<TapeOutput> outputs;

  bool empty() const { return outputs.empty(); }
  const Value& operator[](int value) const { return values[static_cast<size_t>(value)]; }
  const Value& of(const TapeOutput& output) const { return (*this)[output.value]; }

  // Whether each value is needed to make those that are `wanted`, and not `made`.
  std::vector<bool> needed(const std::vector<int>& wanted, const std::vector<bool>& made) const {
    std::vector<bool> needed(values.size());
    for (const int value : wanted) needed[static_cast<size_t>(value)] = true;
    for (size_t i = values.size(); i-- > 0;) {
      needed[i] = needed[i] && !made[i];
      if (!needed[i]) continue;
      for (const int in : {values[i].c, values[i].x, values[i].z}) {
        if (in >= 0) needed[static_cast<size_t>(in)] = true;
      }
    }
    return needed;
  }
  // A room for each value: it may be that of one which is read no more, but not of what the same op
  // reads. `kept`: what is loaded keeps its room.
  std::vector<size_t> rooms(bool kept) const {
    std::vector<Life> lives;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool all = kept && values[i].loads();
      lives.push_back({all ? 0 : i, all ? values.size() : i, 1});
      for (const int in : {values[i].c, values[i].x, values[i].z}) {
        if (in < 0) continue;
        size_t& last = lives[static_cast<size_t>(in)].last;
        last = std::max(last, i);
      }
    }
    for (const TapeOutput& output : outputs) {
      lives[static_cast<size_t>(output.value)].last = values.size();
    }
    place(lives);
    std::vector<size_t> rooms;
    for (const Life& life : lives) rooms.push_back(life.at);
    return rooms;
  }
  bool operator==(const BasicTape&) const = default;
};

}  // namespace split
