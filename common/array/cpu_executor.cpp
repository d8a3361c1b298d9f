// Runs a schedule by the loops and products that inference has.
#include <algorithm>
#include <cstring>

#include "array/executor.h"
#include "array/row_loops.h"
#include "array/tape_loops.h"
#include "base/error.h"
#include "device/cpu/cpu_workspace.h"

namespace split::array {
namespace {

constexpr int64_t kTaskFloats = 16384;  // some microseconds of work
constexpr int64_t kLeastLanes = 256;    // least lanes of a task: threads share narrow sums too

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rows of a matrix that lie one after another.
bool dense_rows(const Access& access, int64_t columns) {
  const Axis &row = access.axes[access.axes.size() - 2], &column = access.axes.back();
  return (column.stride == 1 || column.size == 1) && (row.stride == columns || row.size == 1);
}
bool one_matrix(const Access& access) {
  return std::all_of(access.axes.begin(), access.axes.end() - 2,
                     [](const Axis& axis) { return axis.stride == 0 || axis.size == 1; });
}
// Where matrix `i` of a batch begins.
int64_t matrix_at(const Access& access, int64_t i) {
  int64_t at = access.offset;
  for (size_t axis = access.axes.size() - 2; axis-- > 0;) {
    at += i % access.axes[axis].size * access.axes[axis].stride;
    i /= access.axes[axis].size;
  }
  return at;
}

// to [rows, columns] of a matrix with these strides, in squares that stay in L1.
void copy_matrix(const float* from, int64_t row_stride, int64_t column_stride, int64_t rows,
                 int64_t columns, float* to, int64_t to_stride) {
  constexpr int64_t kSquare = 32;
  if (column_stride == 1) {
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + r * to_stride, from + r * row_stride,
                  static_cast<size_t>(columns) * sizeof(float));
    }
    return;
  }
  for (int64_t r0 = 0; r0 < rows; r0 += kSquare) {
    const int64_t r1 = std::min(rows, r0 + kSquare);
    for (int64_t c = 0; c < columns; ++c) {
      for (int64_t r = r0; r < r1; ++r)
        to[r * to_stride + c] = from[r * row_stride + c * column_stride];
    }
  }
}

// Copies of a product's operands in the order in which its kernel reads them.
struct Product {
  explicit Product(const Kernel& kernel)
      : copies_a(!dense_rows(kernel.a.access, kernel.k)),
        one_a(one_matrix(kernel.a.access)),
        one_b(one_matrix(kernel.b.access)),
        a_floats(whole_lines(static_cast<size_t>(kernel.r * kernel.k))),
        b_floats(whole_lines(static_cast<size_t>(kernel.k * kernel.m))) {}
  size_t floats(const Kernel& kernel) const {
    const auto batch = static_cast<size_t>(kernel.batch);
    return (copies_a ? a_floats * (one_a ? 1 : batch) : 0) + b_floats * (one_b ? 1 : batch);
  }
  bool copies_a, one_a, one_b;
  size_t a_floats, b_floats;  // floats of one matrix
};

class CpuExecutor final : public Executor {
 public:
  CpuExecutor(const CpuKernels& kernels, ThreadPool& pool, const Schedule& schedule, Leaves leaves);

  void run() override;
  std::span<const std::byte> bytes(size_t buffer) override {
    const BufferSpec& spec = schedule_.buffers[buffer];
    return {static_cast<const std::byte*>(places_[buffer]),
            static_cast<size_t>(spec.count) * spec.number_bytes()};
  }
  size_t arena_bytes() const override { return arena_.size(); }

 private:
  float* in_arena(size_t at) const { return reinterpret_cast<float*>(arena_.data()) + at; }
  float* floats(int buffer) const {
    return static_cast<float*>(places_[static_cast<size_t>(buffer)]);
  }
  const void* base_of(const Operand& operand) const {
    return operand.buffer < 0 ? nullptr : places_[static_cast<size_t>(operand.buffer)];
  }
  void run_tape(size_t i);
  void run_product(size_t i);
  void run_take(const Kernel& kernel);
  void run_put(const Kernel& kernel);
  void run_along(const Kernel& kernel);
  std::vector<int64_t> index_of(const Kernel& kernel) const;

  const CpuKernels& kernels_;
  ThreadPool& pool_;
  const Schedule& schedule_;
  const std::vector<Store::Entry*> leaves_;
  const Layout layout_;
  const CpuBuffer arena_;
  std::vector<void*> places_;     // one for each buffer
  std::vector<TapeLoops> tapes_;  // one a kernel
};

CpuExecutor::CpuExecutor(const CpuKernels& kernels, ThreadPool& pool, const Schedule& schedule,
                         Leaves leaves)
    : kernels_(kernels),
      pool_(pool),
      schedule_(schedule),
      leaves_(leaves.begin(), leaves.end()),
      layout_(schedule_, cpu_workspace),
      arena_(layout_.floats * sizeof(float)),
      places_(leaves.size()) {
  for (size_t b = 0; b < places_.size(); ++b) {
    if (layout_.placed[b]) places_[b] = in_arena(layout_.at[b]);
  }
  for (const Kernel& kernel : schedule_.kernels) tapes_.emplace_back(kernel);
}

void CpuExecutor::run() {
  for (size_t b = 0; b < places_.size(); ++b) {  // their vectors may have moved
    if (leaves_[b] != nullptr) places_[b] = leaves_[b]->bytes().data();
  }
  const ThreadPool::Step step(pool_);
  for (size_t i = 0; i < schedule_.kernels.size(); ++i) {
    switch (schedule_.kernels[i].kind) {
      case KernelKind::kRows:
      case KernelKind::kColumns:
        run_tape(i);
        break;
      case KernelKind::kProduct:
        run_product(i);
        break;
      case KernelKind::kTake:
        run_take(schedule_.kernels[i]);
        break;
      case KernelKind::kPut:
        run_put(schedule_.kernels[i]);
        break;
      case KernelKind::kScan:
      case KernelKind::kOrder:
        run_along(schedule_.kernels[i]);
        break;
    }
  }
  for (const auto& [from, to] : schedule_.copies) {
    const size_t n = schedule_.buffers[static_cast<size_t>(from)].words();
    if (n > 0) std::memcpy(floats(to), floats(from), n * sizeof(float));
  }
}

void CpuExecutor::run_tape(size_t i) {
  const Kernel& kernel = schedule_.kernels[i];
  const TapeLoops& tape = tapes_[i];
  const CpuKernels& kernels = kernels_;
  std::vector<const void*> bases(kernel.tape.values.size());
  for (size_t k = 0; k < bases.size(); ++k) bases[k] = base_of(kernel.tape.values[k].load);
  const size_t number = dtype_size(computing(kernel.dtype));
  const bool columns = kernel.kind == KernelKind::kColumns;
  const int64_t all = columns ? kernel.lanes : kernel.rows, inner = kernel.inner;
  const int64_t block =
      columns ? std::min(tape.rows_at_once(), std::max(kLeastLanes, all / 8)) : tape.rows_at_once();
  const int64_t each =
      columns ? block
              : std::max<int64_t>(1, kTaskFloats / std::max<int64_t>(1, inner) / block) * block;
  pool_.run(static_cast<size_t>(divided_up(all, each)), [&](size_t task) {
    const size_t room = tape.scratch_floats();
    float* const scratch = thread_scratch(room + static_cast<size_t>(6 * block));
    std::vector<const void*> values(kernel.tape.values.size());
    const int64_t end = std::min(all, (static_cast<int64_t>(task) + 1) * each);
    for (int64_t row = static_cast<int64_t>(task) * each; row < end; row += block) {
      const int64_t rows = std::min(block, end - row);
      if (!columns) {
        tape.run(kernels, bases, row, rows, scratch, values);
        for (const auto& output : kernel.tape.outputs) {
          const TapeValue& value = kernel.tape.of(output);
          const int64_t n = value.full ? inner : 1;
          const size_t each_bytes = dtype_size(computing(value.dtype));
          auto* const to = static_cast<std::byte*>(places_[static_cast<size_t>(output.slot)]);
          std::memcpy(to + static_cast<size_t>(row * n) * each_bytes,
                      values[static_cast<size_t>(output.value)],
                      static_cast<size_t>(rows * n) * each_bytes);
        }
        continue;
      }
      void *sum = scratch + room, *next = scratch + room + 2 * static_cast<size_t>(block);
      const auto n = static_cast<size_t>(rows);
      const RowLoops& loops = row_loops(computing(kernel.dtype));
      const CpuKernels::Binary join = computing(kernel.dtype) != DType::kF32 ? nullptr
                                      : kernel.reduce == Op::k_reduce_sum
                                          ? kernels.binary[Op::k_add]
                                          : nullptr;
      loops.start[kernel.reduce](nullptr, 0, n, sum);
      for (int64_t m = 0; m < kernel.rows; ++m) {
        tape.run(kernels, bases, m * kernel.lanes + row, rows, scratch, values);
        const void* x = values.back();
        if (kernel.tape.values.back().uniform) {
          float* const all = scratch + room + 4 * static_cast<size_t>(block);
          for (size_t i = 0; i < n; ++i)
            std::memcpy(reinterpret_cast<std::byte*>(all) + i * number, x, number);
          x = all;
        }
        if (join != nullptr) {
          join(static_cast<float*>(sum), static_cast<const float*>(x), static_cast<float*>(next),
               n);
        } else {
          loops.join[kernel.reduce](sum, x, nullptr, next, n);
        }
        std::swap(sum, next);
      }
      std::memcpy(static_cast<std::byte*>(places_[static_cast<size_t>(kernel.out())]) +
                      static_cast<size_t>(row) * number,
                  sum, n * number);
    }
  });
}

void CpuExecutor::run_product(size_t i) {
  const Kernel& kernel = schedule_.kernels[i];
  const Product product(kernel);
  const int64_t r = kernel.r, k = kernel.k, m = kernel.m, batch = kernel.batch;
  float* const y = floats(kernel.out());
  if (r == 0 || m == 0 || batch == 0) return;
  const float *const a = floats(kernel.a.buffer), *const b = floats(kernel.b.buffer);
  float* const packed_b = in_arena(layout_.workspaces[i]);
  const int64_t b_count = product.one_b ? 1 : batch, a_count = product.one_a ? 1 : batch;
  float* const copied_a = packed_b + product.b_floats * static_cast<size_t>(b_count);
  constexpr auto kPanel = static_cast<int64_t>(kPanelColumns);
  constexpr int64_t kRows = 256;
  const int64_t panels = divided_up(m, kPanel), blocks = divided_up(r, kRows);
  const auto strides = [](const Operand& operand) {
    const auto& axes = operand.access.axes;
    return std::pair(axes[axes.size() - 2].stride, axes.back().stride);
  };
  // Strides of rows and of columns.
  const std::pair<int64_t, int64_t> b_by = strides(kernel.b), a_by = strides(kernel.a);
  const int64_t copies = product.copies_a ? a_count * blocks : 0;
  pool_.run(static_cast<size_t>(b_count * panels + copies), [&](size_t task) {
    auto t = static_cast<int64_t>(task);
    if (t < b_count * panels) {
      const int64_t first = t % panels * kPanel, columns = std::min(kPanel, m - first);
      const float* const from = b + matrix_at(kernel.b.access, t / panels);
      copy_matrix(from + first * b_by.second, b_by.first, b_by.second, k, columns,
                  packed_b + static_cast<size_t>(t / panels) * product.b_floats + first * k,
                  columns);
      return;
    }
    t -= b_count * panels;
    const int64_t first = t % blocks * kRows, rows = std::min(kRows, r - first);
    const float* const from = a + matrix_at(kernel.a.access, t / blocks);
    copy_matrix(from + first * a_by.first, a_by.first, a_by.second, rows, k,
                copied_a + static_cast<size_t>(t / blocks) * product.a_floats + first * k, k);
  });
  pool_.run(static_cast<size_t>(batch * blocks * panels), [&](size_t task) {
    const auto t = static_cast<int64_t>(task);
    const int64_t one = t / (blocks * panels), row = t / panels % blocks * kRows;
    const int64_t first = t % panels * kPanel, columns = std::min(kPanel, m - first);
    float* const scratch = thread_scratch(kPanelFloats + kRows * kPanelColumns);
    MatmulTask work;
    work.x = product.copies_a
                 ? copied_a + static_cast<size_t>(product.one_a ? 0 : one) * product.a_floats
                 : a + matrix_at(kernel.a.access, one);
    work.x += row * k;
    work.rows = static_cast<size_t>(std::min(kRows, r - row));
    work.w = reinterpret_cast<const std::byte*>(
        packed_b + static_cast<size_t>(product.one_b ? 0 : one) * product.b_floats);
    work.inner = static_cast<size_t>(k);
    work.width = static_cast<size_t>(m);
    work.first = static_cast<size_t>(first);
    work.columns = static_cast<size_t>(columns);
    work.panel = scratch;
    float* const out = y + (one * r + row) * m + first;
    const bool whole = columns == kPanel;  // else its rows have no room behind
    work.y = whole ? out : scratch + kPanelFloats;
    work.y_stride = whole ? static_cast<size_t>(m) : kPanelColumns;
    if (k == 0) {
      for (size_t n = 0; n < work.rows; ++n)
        std::fill_n(out + static_cast<int64_t>(n) * m, columns, 0.0f);
      return;
    }
    kernels_.matmul(work);
    for (size_t n = 0; !whole && n < work.rows; ++n) {
      std::memcpy(out + static_cast<int64_t>(n) * m, work.y + n * kPanelColumns,
                  static_cast<size_t>(columns) * sizeof(float));
    }
  });
}

// The rows of a table that an index names.
std::vector<int64_t> CpuExecutor::index_of(const Kernel& kernel) const {
  const auto n = static_cast<size_t>(kernel.r);
  std::vector<int64_t> index(n), read(n);
  const void* const from = load(kernel.b, base_of(kernel.b), 0, kernel.r, read.data());
  if (kernel.b.dtype == DType::kF32) {  // a fraction or a NaN is told as it is
    const auto* const floats = static_cast<const float*>(from);
    for (size_t i = 0; i < n; ++i) {
      if (floats[i] >= 0 && floats[i] < static_cast<float>(kernel.k)) continue;
      throw Error(ErrorKind::kInput,
                  cat("[array] expected an index below ", kernel.k, ", got ", floats[i]));
    }
  }
  cast_loop(from, kernel.b.dtype, index.data(), DType::kI64, n);
  for (const int64_t i : index) {
    if (i >= 0 && i < kernel.k) continue;
    throw Error(ErrorKind::kInput, cat("[array] expected an index below ", kernel.k, ", got ", i));
  }
  return index;
}

void CpuExecutor::run_take(const Kernel& kernel) {
  const std::vector<int64_t> index = index_of(kernel);
  const size_t row_bytes = static_cast<size_t>(kernel.m) * dtype_size(computing(kernel.dtype));
  const auto* const from = static_cast<const std::byte*>(base_of(kernel.a));
  auto* const to = static_cast<std::byte*>(places_[static_cast<size_t>(kernel.out())]);
  const int64_t each = std::max<int64_t>(1, kTaskFloats / std::max<int64_t>(1, kernel.m));
  pool_.run(static_cast<size_t>(divided_up(kernel.r, each)), [&](size_t task) {
    const auto first = static_cast<size_t>(each) * task;
    const size_t end = std::min(index.size(), first + static_cast<size_t>(each));
    for (size_t r = first; r < end && row_bytes > 0; ++r) {
      std::memcpy(to + r * row_bytes, from + static_cast<size_t>(index[r]) * row_bytes, row_bytes);
    }
  });
}

// A row of the result is one task's, so that sums have the index's order.
void CpuExecutor::run_put(const Kernel& kernel) {
  const std::vector<int64_t> index = index_of(kernel);
  const int64_t n = kernel.k, width = kernel.m;
  const size_t row_bytes = static_cast<size_t>(width) * dtype_size(computing(kernel.dtype));
  const auto* const from = static_cast<const std::byte*>(base_of(kernel.a));
  auto* const to = static_cast<std::byte*>(places_[static_cast<size_t>(kernel.out())]);
  const RowLoops& loops = row_loops(computing(kernel.dtype));
  const int64_t tasks = std::min<int64_t>(n, 16);
  if (width == 0) return;
  pool_.run(static_cast<size_t>(tasks), [&](size_t task) {
    const int64_t share = divided_up(n, tasks), first = static_cast<int64_t>(task) * share;
    const int64_t end = std::min(n, first + share);
    if (first >= end) return;
    std::vector<std::byte> joined(row_bytes);
    loops.start[kernel.reduce](nullptr, 0, static_cast<size_t>((end - first) * width),
                               to + static_cast<size_t>(first) * row_bytes);
    for (size_t r = 0; r < index.size(); ++r) {
      if (index[r] < first || index[r] >= end) continue;
      std::byte* const row = to + static_cast<size_t>(index[r]) * row_bytes;
      loops.join[kernel.reduce](row, from + r * row_bytes, nullptr, joined.data(),
                                static_cast<size_t>(width));
      std::memcpy(row, joined.data(), row_bytes);
    }
  });
}

// Scans and sorts rows.
void CpuExecutor::run_along(const Kernel& kernel) {
  const RowLoops& loops = row_loops(computing(kernel.dtype));
  const auto inner = static_cast<size_t>(kernel.inner);
  const size_t row_bytes = inner * dtype_size(computing(kernel.dtype));
  const auto* const from = static_cast<const std::byte*>(base_of(kernel.a));
  void* const to = places_[static_cast<size_t>(kernel.out())];
  if (inner == 0) return;
  pool_.run(static_cast<size_t>(kernel.rows), [&](size_t row) {
    if (kernel.kind == KernelKind::kOrder) {
      loops.order(from + row * row_bytes, inner, 1, kernel.descending,
                  static_cast<int64_t*>(to) + row * inner);
    } else {
      loops.scan[kernel.reduce](from + row * row_bytes, inner, 1,
                                static_cast<std::byte*>(to) + row * row_bytes);
    }
  });
}

}  // namespace

size_t cpu_workspace(const Kernel& kernel) {
  return kernel.kind == KernelKind::kProduct ? Product(kernel).floats(kernel) : 0;
}

std::unique_ptr<Executor> make_cpu_executor(const CpuKernels& kernels, ThreadPool& pool,
                                            const Schedule& schedule, Leaves leaves) {
  return std::make_unique<CpuExecutor>(kernels, pool, schedule, leaves);
}

}  // namespace split::array
