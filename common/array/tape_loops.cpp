#include "array/tape_loops.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace split::array {
namespace {

constexpr int64_t kBlockFloats = 1024;     // of one element a row
constexpr int64_t kWideFloats = 4 * 1024;  // of rows: reductions take four together

int64_t room_floats(int64_t inner, int64_t rows) { return (rows * inner + 15) / 16 * 16; }

float element(const Operand& operand, const Base& base, int64_t i) {
  if (operand.from == Operand::From::kNumber) return operand.number;
  if (operand.from == Operand::From::kIota) return static_cast<float>(i);
  return base.floats != nullptr ? base.floats[i] : static_cast<float>(base.numbers[i]);
}

// Elements [from, to) of the last axis, from index 0 of which `at` is the base's element.
void load_run(const Operand& operand, const Base& base, int64_t at, const Axis& axis, int64_t from,
              int64_t to, float* out) {
  const int64_t there = std::clamp(axis.from, from, to), end = std::clamp(axis.to, there, to);
  std::fill(out, out + (there - from), operand.access.fill);
  float* const first = out + (there - from);
  const int64_t n = end - there;
  at += there * axis.stride;
  if (n > 0 && axis.stride == 0) {
    std::fill_n(first, n, element(operand, base, at));
  } else if (base.floats != nullptr && operand.from == Operand::From::kBuffer) {
    if (axis.stride == 1) {
      std::memcpy(first, base.floats + at,
                  static_cast<size_t>(std::max<int64_t>(0, n)) * sizeof(float));
    } else {
      for (int64_t i = 0; i < n; ++i) first[i] = base.floats[at + i * axis.stride];
    }
  } else {
    for (int64_t i = 0; i < n; ++i) first[i] = element(operand, base, at + i * axis.stride);
  }
  std::fill(out + (end - from), out + (to - from), operand.access.fill);
}

}  // namespace

const float* load(const Operand& operand, const Base& base, int64_t begin, int64_t count,
                  float* to) {
  const std::vector<Axis>& axes = operand.access.axes;
  const size_t n = axes.size();
  if (count == 0) return to;
  if (n == 0) {
    std::fill_n(to, count, element(operand, base, operand.access.offset));
    return to;
  }
  const bool whole_runs = n == 1 && axes[0].whole() && axes[0].stride == 1;
  if (whole_runs && base.floats != nullptr && operand.from == Operand::From::kBuffer) {
    return base.floats + operand.access.offset + begin;
  }
  // The indices of the first element; the last axis goes in runs.
  int64_t index[8] = {};
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
      load_run(operand, base, at, last, from, end, to + done);
    } else {
      std::fill_n(to + done, end - from, operand.access.fill);
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

TapeLoops::TapeLoops(const Kernel& kernel) : inner_(kernel.inner) {
  if (kernel.tape.empty()) return;
  at_once_ =
      inner_ <= 1 ? kBlockFloats : std::clamp<int64_t>(kWideFloats / inner_, 1, kBlockFloats);
  const size_t count = kernel.tape.size();
  std::vector<size_t> last(count);  // the op that reads it last; outputs are read behind all
  for (size_t i = 0; i < count; ++i) {
    last[i] = i;
    for (const int in : {kernel.tape[i].x, kernel.tape[i].z, kernel.tape[i].c}) {
      if (in >= 0) last[static_cast<size_t>(in)] = i;
    }
  }
  for (const Kernel::Output& output : kernel.outputs)
    last[static_cast<size_t>(output.value)] = count;
  std::vector<std::vector<size_t>> ends(count + 1);
  for (size_t i = 0; i < count; ++i) ends[last[i]].push_back(i);
  // A value takes the room of one that is read no more; not of what the same op reads.
  std::vector<size_t> free;
  for (size_t i = 0; i < count; ++i) {
    if (free.empty()) free.push_back(rooms_++);
    steps_.push_back({kernel.tape[i], free.back()});
    free.pop_back();
    for (const size_t ended : ends[i]) free.push_back(steps_[ended].room);
  }
}

size_t TapeLoops::scratch_floats() const {
  return (rooms_ + 3) * static_cast<size_t>(room_floats(inner_, at_once_));
}

void TapeLoops::run(const CpuKernels& kernels, std::span<const Base> bases, int64_t begin,
                    int64_t rows, float* scratch, std::span<const float*> values) const {
  const auto each = static_cast<size_t>(room_floats(inner_, at_once_));
  float* const spare = scratch + rooms_ * each;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const Step& step = steps_[i];
    float* const out = scratch + step.room * each;
    if (step.value.op != Op::k_input) {
      compute(kernels, step, values, rows, out, spare);
      values[i] = out;
    } else if (step.value.uniform) {
      *out = element(step.value.operand, bases[i], step.value.operand.access.offset);
      values[i] = out;
    } else {
      const int64_t n = step.value.full ? inner_ : 1;
      values[i] = load(step.value.operand, bases[i], begin * n, rows * n, out);
    }
  }
}

// A value as one of each element, or of each row.
const float* TapeLoops::spread(const Step& of, const float* data, bool full, int64_t rows,
                               float* spare) const {
  if (of.value.uniform) {
    std::fill_n(spare, full ? rows * inner_ : rows, *data);
    return spare;
  }
  if (!full || of.value.full) return data;
  for (int64_t r = 0; r < rows; ++r) std::fill_n(spare + r * inner_, inner_, data[r]);
  return spare;
}

void TapeLoops::compute(const CpuKernels& kernels, const Step& step, std::span<const float*> values,
                        int64_t rows, float* out, float* spare) const {
  const Value& value = step.value;
  const Op op = value.op;
  const int64_t each = room_floats(inner_, at_once_), n = value.full ? rows * inner_ : rows;
  const auto size = static_cast<size_t>(n);
  const auto of = [&](int in) -> const Step& { return steps_[static_cast<size_t>(in)]; };
  const auto input = [&](int in, bool full, int64_t which) {
    return spread(of(in), values[static_cast<size_t>(in)], full, rows, spare + which * each);
  };
  if (const auto reduce = kernels.reduce[op]; reduce != nullptr) {
    const auto inner = static_cast<size_t>(inner_);
    return reduce(input(value.x, inner_ != 1, 0), inner, static_cast<size_t>(rows), inner, out);
  }
  if (const auto unary = kernels.unary[op]; unary != nullptr) {
    return unary(input(value.x, value.full, 0), out, size);
  }
  if (op == Op::k_detach) {
    std::memcpy(out, input(value.x, value.full, 0), size * sizeof(float));
    return;
  }
  const float* const x = input(value.x, value.full, 0);
  if (const auto binary = kernels.binary[op]; binary != nullptr) {
    const Step& z = of(value.z);
    const float* const by = values[static_cast<size_t>(value.z)];
    if (z.value.uniform) return kernels.binary_by[op](x, *by, out, size);
    if (value.full && !z.value.full) {
      const auto inner = static_cast<size_t>(inner_);
      for (size_t r = 0; r < static_cast<size_t>(rows); ++r) {
        kernels.binary_by[op](x + r * inner, by[r], out + r * inner, inner);
      }
      return;
    }
    return binary(x, input(value.z, value.full, 1), out, size);
  }
  const float* const z = input(value.z, value.full, 1);
  switch (op) {
#define COMPARE(name, forward)                                                     \
  case Op::k_##name:                                                               \
    for (int64_t i = 0; i < n; ++i) {                                              \
      out[i] = [](float x, float z) { return forward; }(x[i], z[i]) ? 1.0f : 0.0f; \
    }                                                                              \
    return;
#include "tensor/library.def"
    case Op::k_select: {
      const float* const c = input(value.c, value.full, 2);
#define TERNARY(name, forward, dx, dz)                                            \
  for (int64_t i = 0; i < n; ++i) {                                               \
    out[i] = [](float c, float x, float z) { return forward; }(c[i], x[i], z[i]); \
  }
#include "tensor/library.def"
      return;
    }
    default:
      CHECK(false);
  }
}

}  // namespace split::array
