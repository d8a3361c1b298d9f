// A graph as kernels in order. Pointwise ops and reductions of the last axes become one kernel
// where nobody else reads what is between them; views become how a kernel reads. Plain data; knows
// no device.
//
// Fusing changes no bit: an element's ops and a reduction's order are those of its shape.
#pragma once

#include <string>
#include <vector>

#include "array/access.h"
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
};

// One value of a tape: an operand that is loaded, or an op of values before it.
struct TapeValue {
  Op op = Op::k_input;  // loads
  Operand operand = {};
  DType dtype = DType::kF32;
  int x = -1, z = -1, c = -1;
  bool full = false;     // an element of all rows; else one number a row
  bool uniform = false;  // one number
};

enum class KernelKind : uint8_t { kRows, kColumns, kProduct, kTake, kPut, kScan, kOrder };

struct Kernel {
  KernelKind kind = KernelKind::kRows;
  // kRows: `inner` elements of each row. kColumns: `rows` are reduced, of `lanes` each.
  int64_t rows = 1, inner = 1, lanes = 1;
  std::vector<TapeValue> tape;
  Op reduce = Op::k_reduce_sum;  // kColumns: of the last value; kPut, kScan
  DType dtype = DType::kF32;     // in which it computes; kTake, kPut, kScan, kOrder: of a
  bool descending = false;       // kOrder
  struct Output {
    int value = 0;
    int buffer = 0;
  };
  std::vector<Output> outputs;
  // kProduct: a [batch..., R, K], b [batch..., K, M]. kTake: a table, b index. kPut: a rows, b
  // index. kScan, kOrder: a [rows, inner].
  Operand a, b;
  int64_t batch = 1, r = 0, k = 0, m = 0;  // kTake: m columns, r rows of k; kPut: r rows onto k

  void each_operand(const auto& call) const {
    if (kind == KernelKind::kRows || kind == KernelKind::kColumns) {
      for (const TapeValue& value : tape) {
        if (value.op == Op::k_input) call(value.operand);
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
