#include "array/plan.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "array/tape_loops.h"
#include "base/error.h"
#include "base/log.h"

namespace split::array {
namespace {

constexpr int64_t kTaskFloats = 16384;  // some microseconds of work
constexpr int64_t kLeastLanes = 256;    // of a task, so that threads share narrow sums too
constexpr size_t kLine = 16;            // floats of a cache line

// Memory of each thread that no kernel keeps.
float* thread_scratch(size_t floats) {
  thread_local std::vector<float> memory;
  if (memory.size() < floats + kLine) memory.resize(floats + kLine);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  return memory.data() + (64 - address % 64) % 64 / sizeof(float);
}

size_t padded(size_t floats) { return (floats + kLine - 1) / kLine * kLine; }
int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Room in the arena: the smallest gap that fits, gaps joined as they are given back.
class Arena {
 public:
  size_t take(size_t floats) {
    floats = std::max<size_t>(padded(floats), kLine);
    auto best = gaps_.end();
    for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
      if (gap->second >= floats && (best == gaps_.end() || gap->second < best->second)) best = gap;
    }
    if (best == gaps_.end()) {
      // A gap at the end grows.
      size_t at = size_;
      if (!gaps_.empty() &&
          std::prev(gaps_.end())->first + std::prev(gaps_.end())->second == size_) {
        at = std::prev(gaps_.end())->first;
        gaps_.erase(std::prev(gaps_.end()));
      }
      size_ = at + floats;
      return at;
    }
    const auto [at, size] = *best;
    gaps_.erase(best);
    if (size > floats) gaps_.emplace(at + floats, size - floats);
    return at;
  }
  void give(size_t at, size_t floats) {
    floats = std::max<size_t>(padded(floats), kLine);
    auto gap = gaps_.emplace(at, floats).first;
    if (const auto next = std::next(gap); next != gaps_.end() && at + floats == next->first) {
      gap->second += next->second;
      gaps_.erase(next);
    }
    if (gap != gaps_.begin()) {
      const auto before = std::prev(gap);
      if (before->first + before->second == at) {
        before->second += gap->second;
        gaps_.erase(gap);
      }
    }
  }
  size_t size() const { return size_; }

 private:
  std::map<size_t, size_t> gaps_;
  size_t size_ = 0;
};

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

}  // namespace

Runtime::Runtime(unsigned threads)
    : kernels(choose_kernels([] {
        const char* const limit = std::getenv("SPLIT_CPU_ISA");  // as the device has it
        return std::string_view(limit == nullptr ? "" : limit);
      }())),
      pool(threads) {}

Plan::Plan(Runtime& runtime, const Graph& graph, Store& store, bool fuse)
    : runtime_(runtime), schedule_(schedule(graph, fuse)) {
  bind(store);
  place_temporaries();
  for (const Kernel& kernel : schedule_.kernels) tapes_.emplace_back(kernel);
  if (debug_level() >= 2) write_log(text());
}
Plan::~Plan() = default;

void Plan::bind(Store& store) {
  places_.resize(schedule_.buffers.size());
  for (size_t i = 0; i < places_.size(); ++i) {
    const BufferSpec& spec = schedule_.buffers[i];
    if (!spec.leaf()) continue;
    Store::Entry* const entry = store.find(spec.name);
    const bool written = std::ranges::count(schedule_.written, static_cast<int>(i)) > 0;
    if (entry == nullptr || entry->dims != spec.dims || entry->dtype != spec.dtype) {
      throw Error(
          ErrorKind::kShape,
          cat("[array] '", spec.name, "': expected ", dtype_name(spec.dtype), " ",
              to_string(spec.dims), ", got ",
              entry == nullptr ? "none"
                               : cat(dtype_name(entry->dtype), " ", to_string(entry->dims))));
    }
    if (written && !entry->state) {
      throw Error(ErrorKind::kShape,
                  cat("[array] '", spec.name, "' is written by a step, but is none of its state"));
    }
    places_[i] = {entry->floats.data(),
                  spec.dtype == DType::kI32 ? entry->numbers.data() : nullptr};
    if (spec.dtype == DType::kI32) places_[i].floats = nullptr;
  }
}

// Copies of a product's operands in the order in which its kernel reads them.
struct Plan::Product {
  explicit Product(const Kernel& kernel)
      : copies_a(!dense_rows(kernel.a.access, kernel.k)),
        one_a(one_matrix(kernel.a.access)),
        one_b(one_matrix(kernel.b.access)),
        a_floats(padded(static_cast<size_t>(kernel.r * kernel.k))),
        b_floats(padded(static_cast<size_t>(kernel.k * kernel.m))) {}
  size_t floats(const Kernel& kernel) const {
    const auto batch = static_cast<size_t>(kernel.batch);
    return (copies_a ? a_floats * (one_a ? 1 : batch) : 0) + b_floats * (one_b ? 1 : batch);
  }
  bool copies_a, one_a, one_b;
  size_t a_floats, b_floats;  // of one matrix
};

struct Plan::Layout {
  explicit Layout(const Schedule& schedule);
  std::vector<size_t> at;  // of temporaries, by buffer, in floats
  std::vector<bool> placed;
  std::vector<size_t> workspaces;  // of kernels
  size_t floats = 0;
};

Plan::Layout::Layout(const Schedule& schedule)
    : at(schedule.buffers.size()),
      placed(schedule.buffers.size()),
      workspaces(schedule.kernels.size()) {
  const size_t kernels = schedule.kernels.size();
  std::vector<size_t> last(at.size(), 0);
  for (size_t i = 0; i < kernels; ++i) {
    schedule.kernels[i].each_operand([&](const Operand& operand) {
      if (operand.buffer >= 0) last[static_cast<size_t>(operand.buffer)] = i;
    });
    for (const auto& output : schedule.kernels[i].outputs) {
      auto& end = last[static_cast<size_t>(output.buffer)];
      end = std::max(end, i);
    }
  }
  for (const auto& output : schedule.outputs) last[static_cast<size_t>(output.buffer)] = kernels;
  for (const auto& copy : schedule.copies) last[static_cast<size_t>(copy.first)] = kernels;
  std::vector<std::vector<size_t>> ends(kernels + 1);
  for (size_t b = 0; b < at.size(); ++b) ends[last[b]].push_back(b);
  const auto size = [&](size_t b) { return static_cast<size_t>(schedule.buffers[b].count); };
  Arena arena;
  for (size_t i = 0; i < kernels; ++i) {
    const Kernel& kernel = schedule.kernels[i];
    for (const auto& output : kernel.outputs) {
      const auto b = static_cast<size_t>(output.buffer);
      if (schedule.buffers[b].leaf() || placed[b]) continue;
      at[b] = arena.take(size(b));
      placed[b] = true;
    }
    if (kernel.kind == KernelKind::kProduct) {
      const size_t own = Product(kernel).floats(kernel);
      workspaces[i] = arena.take(own);
      arena.give(workspaces[i], own);
    }
    for (const size_t b : ends[i]) {
      if (placed[b]) arena.give(at[b], size(b));
    }
  }
  floats = arena.size();
}

uint64_t Plan::bytes_of(const Graph& graph) {
  return Layout(schedule(graph)).floats * sizeof(float);
}

void Plan::place_temporaries() {
  Layout layout(schedule_);
  arena_.resize(layout.floats + kLine);
  const auto address = reinterpret_cast<uintptr_t>(arena_.data());
  float* const begin = arena_.data() + (64 - address % 64) % 64 / sizeof(float);
  for (size_t b = 0; b < places_.size(); ++b) {
    if (layout.placed[b]) places_[b].floats = begin + layout.at[b];
  }
  workspaces_ = std::move(layout.workspaces);
  for (size_t& workspace : workspaces_) workspace += static_cast<size_t>(begin - arena_.data());
}

void Plan::run() {
  const ThreadPool::Step step(runtime_.pool);
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
      case KernelKind::kPut:
        run_rows(i);
        break;
    }
  }
  for (const auto& [from, to] : schedule_.copies) {
    const auto n = static_cast<size_t>(schedule_.buffers[static_cast<size_t>(from)].count);
    std::memcpy(places_[static_cast<size_t>(to)].floats, places_[static_cast<size_t>(from)].floats,
                n * sizeof(float));
  }
}

void Plan::run_tape(size_t i) {
  const Kernel& kernel = schedule_.kernels[i];
  const TapeLoops& tape = tapes_[i];
  const CpuKernels& kernels = runtime_.kernels;
  std::vector<Base> bases(kernel.tape.size());
  for (size_t k = 0; k < bases.size(); ++k) {
    const int buffer = kernel.tape[k].operand.buffer;
    if (buffer < 0) continue;
    const Place& place = places_[static_cast<size_t>(buffer)];
    bases[k] = {place.floats, place.numbers};
  }
  const bool columns = kernel.kind == KernelKind::kColumns;
  const int64_t all = columns ? kernel.lanes : kernel.rows, inner = kernel.inner;
  const int64_t block =
      columns ? std::min(tape.rows_at_once(), std::max(kLeastLanes, all / 8)) : tape.rows_at_once();
  const int64_t each =
      columns ? block
              : std::max<int64_t>(1, kTaskFloats / std::max<int64_t>(1, inner) / block) * block;
  runtime_.pool.run(static_cast<size_t>(divided_up(all, each)), [&](size_t task) {
    const size_t room = tape.scratch_floats();
    float* const scratch = thread_scratch(room + static_cast<size_t>(2 * block));
    std::vector<const float*> values(kernel.tape.size());
    const int64_t end = std::min(all, (static_cast<int64_t>(task) + 1) * each);
    for (int64_t row = static_cast<int64_t>(task) * each; row < end; row += block) {
      const int64_t rows = std::min(block, end - row);
      if (!columns) {
        tape.run(kernels, bases, row, rows, scratch, values);
        for (const auto& output : kernel.outputs) {
          const Value& value = kernel.tape[static_cast<size_t>(output.value)];
          const int64_t n = value.full ? inner : 1;
          std::memcpy(places_[static_cast<size_t>(output.buffer)].floats + row * n,
                      values[static_cast<size_t>(output.value)],
                      static_cast<size_t>(rows * n) * sizeof(float));
        }
        continue;
      }
      float *sum = scratch + room, *next = sum + block;
      const Op join = kernel.reduce == Op::k_reduce_sum   ? Op::k_add
                      : kernel.reduce == Op::k_reduce_max ? Op::k_maximum
                                                          : Op::k_minimum;
      float start = 0;
      kernels.reduce[kernel.reduce](&start, 0, 1, 0, &start);
      std::fill_n(sum, rows, start);
      for (int64_t m = 0; m < kernel.rows; ++m) {
        tape.run(kernels, bases, m * kernel.lanes + row, rows, scratch, values);
        const float* x = values.back();
        if (kernel.tape.back().uniform) {
          kernels.binary_by[join](sum, *x, next, static_cast<size_t>(rows));
        } else {
          kernels.binary[join](sum, x, next, static_cast<size_t>(rows));
        }
        std::swap(sum, next);
      }
      std::memcpy(places_[static_cast<size_t>(kernel.outputs[0].buffer)].floats + row, sum,
                  static_cast<size_t>(rows) * sizeof(float));
    }
  });
}

void Plan::run_product(size_t i) {
  const Kernel& kernel = schedule_.kernels[i];
  const Product product(kernel);
  const int64_t r = kernel.r, k = kernel.k, m = kernel.m, batch = kernel.batch;
  float* const y = places_[static_cast<size_t>(kernel.outputs[0].buffer)].floats;
  if (r == 0 || m == 0 || batch == 0) return;
  const float* const a = places_[static_cast<size_t>(kernel.a.buffer)].floats;
  const float* const b = places_[static_cast<size_t>(kernel.b.buffer)].floats;
  float* const packed_b = arena_.data() + workspaces_[i];
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
  runtime_.pool.run(static_cast<size_t>(b_count * panels + copies), [&](size_t task) {
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
  runtime_.pool.run(static_cast<size_t>(batch * blocks * panels), [&](size_t task) {
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
    runtime_.kernels.matmul(work);
    for (size_t n = 0; !whole && n < work.rows; ++n) {
      std::memcpy(out + static_cast<int64_t>(n) * m, work.y + n * kPanelColumns,
                  static_cast<size_t>(columns) * sizeof(float));
    }
  });
}

// Rows of a table by an index, or added to one. A row of the table is one task's, so that sums have
// the index's order.
void Plan::run_rows(size_t i) {
  const Kernel& kernel = schedule_.kernels[i];
  const bool takes = kernel.kind == KernelKind::kTake;
  const int64_t n = kernel.k, rows = kernel.r, width = kernel.m;
  const float* const from = places_[static_cast<size_t>(kernel.a.buffer)].floats;
  float* const to = places_[static_cast<size_t>(kernel.outputs[0].buffer)].floats;
  std::vector<float> read(static_cast<size_t>(rows));
  Base base;
  if (kernel.b.buffer >= 0) {
    const Place& place = places_[static_cast<size_t>(kernel.b.buffer)];
    base = {place.floats, place.numbers};
  }
  const float* const index = load(kernel.b, base, 0, rows, read.data());
  for (int64_t r = 0; r < rows; ++r) {
    if (!(index[r] >= 0 && index[r] < static_cast<float>(n))) {
      throw Error(ErrorKind::kInput,
                  cat("[array] expected an index below ", n, ", got ", index[r]));
    }
  }
  const auto row_bytes = static_cast<size_t>(width) * sizeof(float);
  const int64_t all = takes ? rows : n;
  const int64_t each = std::max<int64_t>(1, kTaskFloats / std::max<int64_t>(1, width));
  const int64_t tasks = takes ? divided_up(all, each) : std::min<int64_t>(all, 16);
  runtime_.pool.run(static_cast<size_t>(tasks), [&](size_t task) {
    const int64_t share = divided_up(all, tasks), first = static_cast<int64_t>(task) * share;
    const int64_t end = std::min(all, first + share);
    if (takes) {
      for (int64_t r = first; r < end; ++r) {
        std::memcpy(to + r * width, from + static_cast<int64_t>(index[r]) * width, row_bytes);
      }
      return;
    }
    if (first < end)
      std::memset(to + first * width, 0, static_cast<size_t>(end - first) * row_bytes);
    for (int64_t r = 0; r < rows; ++r) {
      const auto at = static_cast<int64_t>(index[r]);
      if (at < first || at >= end) continue;
      for (int64_t c = 0; c < width; ++c) to[at * width + c] += from[r * width + c];
    }
  });
}

const Schedule::Output& Plan::result(std::string_view name) const {
  for (const Schedule::Output& output : schedule_.outputs) {
    if (output.name == name) return output;
  }
  throw Error(ErrorKind::kNotFound, cat("[array] no result '", name, "'"));
}
std::span<const float> Plan::output(std::string_view name) const {
  const auto b = static_cast<size_t>(result(name).buffer);
  return {places_[b].floats, static_cast<size_t>(schedule_.buffers[b].count)};
}
const Dims& Plan::dims(std::string_view name) const { return result(name).dims; }

}  // namespace split::array
