// A graph as kernels in order. Pointwise ops and reductions of the last axes become one kernel
// where nobody else reads what is between them; views become how a kernel reads. Plain data; knows
// no device.
//
// Fusing changes no bit: an element's ops and a reduction's order are those of its shape.
#pragma once

#include <string>
#include <vector>

#include "array/access.h"
#include "compile/tape.h"
#include "tensor/types.h"

namespace split::array {

struct Graph {
  std::vector<NamedOutput> outputs;
  std::vector<NamedOutput> updates;  // leaves that it writes, by their names, when it has run
};

struct Operand {
  enum class From : uint8_t { kBuffer, kNumber, kIota };  // kIota: element i is i
  From from = From::kBuffer;
  int buffer = -1;
  double number = 0;
  DType dtype = DType::kF32;
  Access access;
  bool operator==(const Operand&) const = default;
};

using Tape = BasicTape<Operand>;
using TapeValue = Tape::Value;

enum class KernelKind : uint8_t { kRows, kColumns, kProduct, kTake, kPut, kScan, kOrder };

struct Kernel {
  KernelKind kind = KernelKind::kRows;
  // kRows: `inner` elements of each row. kColumns: `rows` are reduced, of `lanes` each.
  int64_t rows = 1, inner = 1, lanes = 1;
  Tape tape;                     // without values where kernels have operands of their own
  Op reduce = Op::k_reduce_sum;  // kColumns: of the last value; kPut, kScan
  DType dtype = DType::kF32;     // in which it computes; kTake, kPut, kScan, kOrder: of a
  bool descending = false;       // kOrder
  // kProduct: a [batch..., R, K], b [batch..., K, M]. kTake: a table, b index. kPut: a rows, b
  // index. kScan, kOrder: a [rows, inner].
  Operand a, b;
  int64_t batch = 1, r = 0, k = 0, m = 0;  // kTake: m columns, r rows of k; kPut: r rows onto k

  int out() const { return tape.outputs[0].slot; }
  void each_operand(const auto& call) const {
    if (kind == KernelKind::kRows || kind == KernelKind::kColumns) {
      for (const TapeValue& value : tape.values) {
        if (value.loads()) call(value.load);
      }
    } else {
      call(a);
      if (kind != KernelKind::kScan && kind != KernelKind::kOrder) call(b);
    }
  }
};

struct BufferSpec {
  std::string name;  // a leaf's; others are temporaries
  DType dtype = DType::kF32;
  Dims dims;
  int64_t count = 0;
  bool leaf() const { return !name.empty(); }
  // Bytes of a number, and floats' room of all, as they are computed with.
  size_t number_bytes() const { return dtype_size(computing(dtype)); }
  size_t words() const { return static_cast<size_t>(count) * number_bytes() / sizeof(float); }
};

struct Schedule {
  std::vector<BufferSpec> buffers;
  std::vector<Kernel> kernels;
  struct Output {
    std::string name;
    int buffer = 0;
    Dims dims;
  };
  std::vector<Output> outputs;
  // Buffers that are copied onto leaves at the end, as in place they would be read too late.
  std::vector<std::pair<int, int>> copies;
  std::vector<int> written;  // leaves
};

// `fuse`: false makes a kernel of each op, for tests. Throws Error(kShape).
Schedule schedule(const Graph& graph, bool fuse = true);
std::string text_of(const Schedule& schedule);

}  // namespace split::array
