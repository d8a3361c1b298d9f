#include "array/tape_loops.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "array/row_loops.h"
#include "base/error.h"

namespace split::array {
namespace {

constexpr int64_t kBlockFloats = 1024;     // where a row has one element
constexpr int64_t kWideFloats = 4 * 1024;  // where it has rows: reductions take four together

// A number as its bits.
template <typename Word>
Word bits_of(double value, DType dtype) {
  if constexpr (sizeof(Word) == 8) return std::bit_cast<Word>(static_cast<int64_t>(value));
  if (computing(dtype) == DType::kF32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  return static_cast<Word>(static_cast<int32_t>(value));
}

template <typename Word>
Word element(const Operand& operand, const void* base, int64_t i) {
  if (operand.from == Operand::From::kNumber) return bits_of<Word>(operand.number, operand.dtype);
  if (operand.from == Operand::From::kIota) {
    return bits_of<Word>(static_cast<double>(i), operand.dtype);
  }
  return static_cast<const Word*>(base)[i];
}

// Elements [from, to) of the last axis, from index 0 of which `at` is the base's element.
template <typename Word>
void load_run(const Operand& operand, const void* base, int64_t at, const Axis& axis, int64_t from,
              int64_t to, Word fill, Word* out) {
  const int64_t there = std::clamp(axis.from, from, to), end = std::clamp(axis.to, there, to);
  std::fill(out, out + (there - from), fill);
  Word* const first = out + (there - from);
  const int64_t n = end - there;
  at += there * axis.stride;
  if (n > 0 && axis.stride == 0) {
    std::fill_n(first, n, element<Word>(operand, base, at));
  } else if (operand.from == Operand::From::kBuffer) {
    const Word* const words = static_cast<const Word*>(base);
    if (axis.stride == 1) {
      std::memcpy(first, words + at, static_cast<size_t>(std::max<int64_t>(0, n)) * sizeof(Word));
    } else {
      for (int64_t i = 0; i < n; ++i) first[i] = words[at + i * axis.stride];
    }
  } else {
    for (int64_t i = 0; i < n; ++i) first[i] = element<Word>(operand, base, at + i * axis.stride);
  }
  std::fill(out + (end - from), out + (to - from), fill);
}

template <typename Word>
const void* load_words(const Operand& operand, const void* base, int64_t begin, int64_t count,
                       Word* to) {
  const std::vector<Axis>& axes = operand.access.axes;
  const size_t n = axes.size();
  if (count == 0) return to;
  if (n == 0) {
    std::fill_n(to, count, element<Word>(operand, base, operand.access.offset));
    return to;
  }
  const bool whole_runs = n == 1 && axes[0].whole() && axes[0].stride == 1;
  if (whole_runs && operand.from == Operand::From::kBuffer) {
    return static_cast<const Word*>(base) + operand.access.offset + begin;
  }
  const Word fill = bits_of<Word>(operand.access.fill, operand.dtype);
  // The indices of the first element; the last axis goes in runs.
  int64_t index[kMostAccessAxes] = {};
  CHECK(n <= std::size(index));
  int64_t rest = begin;
  for (size_t i = n; i-- > 0;) {
    index[i] = rest % axes[i].size;
    rest /= axes[i].size;
  }
  const Axis& last = axes[n - 1];
  for (int64_t done = 0; done < count;) {
    const int64_t from = index[n - 1], end = std::min(last.size, from + count - done);
    int64_t at = operand.access.offset;
    bool there = true;
    for (size_t i = 0; i + 1 < n; ++i) {
      at += index[i] * axes[i].stride;
      there = there && index[i] >= axes[i].from && index[i] < axes[i].to;
    }
    if (there) {
      load_run(operand, base, at, last, from, end, fill, to + done);
    } else {
      std::fill_n(to + done, end - from, fill);
    }
    done += end - from;
    index[n - 1] = 0;
    for (size_t i = n - 1; i-- > 0;) {
      if (++index[i] < axes[i].size) break;
      index[i] = 0;
    }
  }
  return to;
}

}  // namespace

const void* load(const Operand& operand, const void* base, int64_t begin, int64_t count, void* to) {
  return computing(operand.dtype) == DType::kI64
             ? load_words(operand, base, begin, count, static_cast<uint64_t*>(to))
             : load_words(operand, base, begin, count, static_cast<uint32_t*>(to));
}

TapeLoops::TapeLoops(const Kernel& kernel) : inner_(kernel.inner) {
  if (kernel.tape.values.empty()) return;
  at_once_ =
      inner_ <= 1 ? kBlockFloats : std::clamp<int64_t>(kWideFloats / inner_, 1, kBlockFloats);
  const std::vector<size_t> rooms = kernel.tape.rooms(false);
  for (size_t i = 0; i < rooms.size(); ++i) {
    const TapeValue& value = kernel.tape.values[i];
    if (computing(value.dtype) == DType::kI64) widest_ = 2;
    steps_.push_back({value, rooms[i]});
    rooms_ = std::max(rooms_, rooms[i] + 1);
  }
}

int64_t TapeLoops::room_floats() const { return (at_once_ * inner_ * widest_ + 15) / 16 * 16; }
size_t TapeLoops::scratch_floats() const {
  return (rooms_ + 3) * static_cast<size_t>(room_floats());
}

void TapeLoops::run(const CpuKernels& kernels, std::span<const void* const> bases, int64_t begin,
                    int64_t rows, float* scratch, std::span<const void*> values) const {
  const auto each = static_cast<size_t>(room_floats());
  float* const spare = scratch + rooms_ * each;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    float* const out = scratch + step.room * each;
    if (!step.value.loads()) {
      compute(kernels, step, values, rows, out, spare);
      values[i] = out;
    } else if (step.value.uniform) {
      Operand one = step.value.load;
      one.access.axes.clear();
      values[i] = load(one, bases[i], 0, 1, out);
    } else {
      const int64_t n = step.value.full ? inner_ : 1;
      values[i] = load(step.value.load, bases[i], begin * n, rows * n, out);
    }
  }
}

// A value as one of each element, or of each row.
const void* TapeLoops::spread(const Step& of, const void* data, bool full, int64_t rows,
                              void* spare) const {
  const auto fill = [&](auto* to) {
    const auto* const from = static_cast<decltype(to)>(const_cast<void*>(data));  // NOLINT
    if (of.value.uniform) {
      std::fill_n(to, full ? rows * inner_ : rows, *from);
    } else {
      for (int64_t r = 0; r < rows; ++r) std::fill_n(to + r * inner_, inner_, from[r]);
    }
  };
  if (!of.value.uniform && (!full || of.value.full)) return data;
  if (computing(of.value.dtype) == DType::kI64) {
    fill(static_cast<uint64_t*>(spare));
  } else {
    fill(static_cast<uint32_t*>(spare));
  }
  return spare;
}

// Rows of ops.def in F32 by the loops of inference. False where it is none.
bool TapeLoops::compute_floats(const CpuKernels& kernels, const Step& step,
                               std::span<const void*> values, int64_t rows, float* out,
                               float* spare) const {
  const TapeValue& value = step.value;
  const Op op = value.op;
  const int64_t each = room_floats(), n = value.full ? rows * inner_ : rows;
  const auto size = static_cast<size_t>(n);
  const auto of = [&](int in) -> const Step& { return steps_[static_cast<size_t>(in)]; };
  const auto input = [&](int in, bool full, int64_t which) {
    return static_cast<const float*>(
        spread(of(in), values[static_cast<size_t>(in)], full, rows, spare + which * each));
  };
  if (const auto reduce = kernels.reduce[op]; reduce != nullptr) {
    const auto inner = static_cast<size_t>(inner_);
    reduce(input(value.x, inner_ != 1, 0), inner, static_cast<size_t>(rows), inner, out);
    return true;
  }
  if (const auto unary = kernels.unary[op]; unary != nullptr) {
    unary(input(value.x, value.full, 0), out, size);
    return true;
  }
  const auto binary = kernels.binary[op];
  if (binary == nullptr) return false;
  const float* const x = input(value.x, value.full, 0);
  const Step& z = of(value.z);
  const auto* const by = static_cast<const float*>(values[static_cast<size_t>(value.z)]);
  if (z.value.uniform) {
    kernels.binary_by[op](x, *by, out, size);
  } else if (value.full && !z.value.full) {
    const auto inner = static_cast<size_t>(inner_);
    for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
      kernels.binary_by[op](x + r * inner, by[r], out + r * inner, inner);
    }
  } else {
    binary(x, input(value.z, value.full, 1), out, size);
  }
  return true;
}

void TapeLoops::compute(const CpuKernels& kernels, const Step& step, std::span<const void*> values,
                        int64_t rows, void* out, float* spare) const {
  const TapeValue& value = step.value;
  const Op op = value.op;
  const int64_t each = room_floats();
  const auto of = [&](int in) -> const Step& { return steps_[static_cast<size_t>(in)]; };
  const auto input = [&](int in, bool full, int64_t which) -> const void* {
    if (in < 0) return nullptr;
    return spread(of(in), values[static_cast<size_t>(in)], full, rows, spare + which * each);
  };
  const DType from = of(value.x).value.dtype, in = computing(from);
  if (in == DType::kF32 && value.dtype == DType::kF32 &&
      compute_floats(kernels, step, values, rows, static_cast<float*>(out), spare)) {
    return;
  }
  const auto size = static_cast<size_t>(value.full ? rows * inner_ : rows);
  if (op == Op::k_detach) {
    std::memcpy(out, input(value.x, value.full, 0), size * dtype_size(computing(value.dtype)));
    return;
  }
  if (op == Op::k_cast) {
    return cast_loop(input(value.x, value.full, 0), from, out, value.dtype, size);
  }
  const RowLoops& loops = row_loops(in);
  if (const auto reduce = loops.reduce[op]; reduce != nullptr) {
    return reduce(input(value.x, inner_ != 1, 0), static_cast<size_t>(inner_),
                  static_cast<size_t>(rows), out);
  }
  CHECK(loops.pointwise[op] != nullptr);
  loops.pointwise[op](input(value.x, value.full, 0), input(value.z, value.full, 1),
                      input(value.c, value.full, 2), out, size);
}

}  // namespace split::array
