// A graph as a list, each item after what it reads: leaves, and what is computed. Equal nodes are
// one item, and views are gone: they are how an item is read. For schedule.cpp alone.
#pragma once

#include <string>
#include <vector>

#include "array/access.h"
#include "array/schedule.h"

namespace split::array {

struct Read {
  int base = 0;  // an item
  Access access;
};

struct Item {
  // Reductions of the last axes, in rows; of others, in columns: lanes are what is kept.
  enum class Form : uint8_t { kLeaf, kPointwise, kRows, kColumns, kOther };
  const Node* node = nullptr;
  Op op = Op::k_constant;  // k_detach copies
  Form form = Form::kLeaf;
  DType dtype = DType::kF32;
  Dims dims;
  int64_t reduced = 1;
  std::vector<Read> reads;  // over the domain of the kernel: [rows, reduced] or [reduced, lanes]
  struct Reader {
    int item;
    size_t input;
  };
  std::vector<Reader> readers;
  bool external = false;  // a result of the graph, or what becomes of a leaf
  int updates = -1;       // the leaf that it updates
  bool computed() const { return form != Form::kLeaf; }
};

struct Items {
  std::vector<Item> all;
  struct Output {
    std::string name;
    int item = 0;
    Dims dims;
  };
  std::vector<Output> outputs;
};

Items make_items(const Graph& graph);

int64_t count_of(const Dims& dims);

}  // namespace split::array
