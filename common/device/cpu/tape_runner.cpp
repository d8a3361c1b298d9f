#include "device/cpu/tape_runner.h"

#include <algorithm>
#include <cstring>

namespace split {
namespace {

constexpr size_t kMaxValues = 64;  // values of one tape
constexpr size_t kFill = 16;       // floats of padding behind each scratch value: one vector

size_t padded(size_t columns) { return (columns + kFill - 1) / kFill * kFill; }

// Rows that go through the tape together: of narrow ones a value is at most 4 KiB, of wide ones
// there are four, which reductions take together, while what is live fits L1.
constexpr size_t kNarrowFloats = 1024, kWideFloats = 3200;
size_t rows_at_once(size_t columns) {
  const size_t width = padded(columns);
  return std::max<size_t>({1, kNarrowFloats / width, std::min<size_t>(4, kWideFloats / width)});
}
// From this width on a call for each row costs less than a copy of a vector for each.
constexpr size_t kWide = 256;

}  // namespace

TapeRunner::TapeRunner(const Tape& tape, const CpuKernels& kernels)
    // Vectors stay from block to block.
    : tape_(tape), kernels_(kernels), room_(tape.rooms(true)) {
  if (room_.size() > kMaxValues) {
    throw Error(ErrorKind::kDevice, cat("[cpu] expected at most ", kMaxValues,
                                        " values in one fused group, got ", room_.size()));
  }
  rooms_ = room_.empty() ? 0 : *std::ranges::max_element(room_) + 1;
  // No tape writes what it reads.
  for (const TapeOutput& output : tape_.outputs) {
    const bool last = static_cast<size_t>(output.value) + 1 == room_.size();
    if (last && tape_.values.back().full) made_in_ = output.slot;
  }
}

// The rooms, and a row for a broadcast.
size_t TapeRunner::scratch_floats(size_t columns) const {
  const size_t width = padded(columns);
  return rooms_ * std::max({kNarrowFloats, std::min(4 * width, kWideFloats), width}) + width;
}

void TapeRunner::run(const std::vector<SlotPlace>& slots, size_t row, size_t rows, size_t first,
                     size_t count, const float* product, size_t product_stride, float* scratch,
                     float* elsewhere) const {
  const size_t each = rows_at_once(count);
  for (size_t done = 0; done < rows; done += each) {
    run_block(slots, row + done, std::min(each, rows - done), first, count,
              product == nullptr ? nullptr : product + done * product_stride, product_stride,
              scratch, elsewhere == nullptr ? nullptr : elsewhere + done * count, done > 0);
  }
}

// A vector as a row for each row, so that an op takes all rows at once.
TapeRunner::Value TapeRunner::repeated(const Operand& from, const std::vector<SlotPlace>& slots,
                                       size_t rows, size_t first, size_t count, float* buffer,
                                       bool again) const {
  const size_t stride = padded(count);
  if (!again) {
    const Value vector = operand(from, slots, 0, 1, first, count, buffer);
    for (size_t r = 0; r < rows; ++r) {
      if (buffer + r * stride != vector.data) {
        std::memcpy(buffer + r * stride, vector.data, count * sizeof(float));
      }
    }
  }
  return {buffer, stride, false};
}

// A value that is in a slot; in `buffer` where it must be converted.
TapeRunner::Value TapeRunner::operand(const Operand& operand, const std::vector<SlotPlace>& slots,
                                      size_t row, size_t rows, size_t first, size_t count,
                                      float* buffer) const {
  if (operand.access.kind == Access::kImmediate) {
    std::fill_n(buffer, rows, operand.access.value);
    return {buffer, 0, true};
  }
  const SlotPlace& place = slots[static_cast<size_t>(operand.slot)];
  const auto at = [&](size_t element) { return place.base + element * dtype_size(place.dtype); };
  if (operand.access.kind == Access::kPerRow || operand.access.kind == Access::kVector ||
      operand.access.kind == Access::kRowwise) {
    const bool per_row = operand.access.kind == Access::kPerRow;
    const bool rowwise = operand.access.kind == Access::kRowwise;
    const size_t element = per_row ? row : rowwise ? row * place.columns + first : first;
    if (place.dtype == DType::kF32) {
      return {reinterpret_cast<const float*>(at(element)), rowwise ? place.columns : 0, per_row};
    }
    if (!rowwise) {
      kernels_.widen(at(element), place.dtype, buffer, per_row ? rows : count);
      return {buffer, 0, per_row};
    }
  }
  const size_t stride = padded(count);
  for (size_t r = 0; r < rows; ++r) {
    size_t index = row + r;
    if (operand.access.kind == Access::kGather) {
      int32_t token = 0;
      std::memcpy(&token,
                  slots[static_cast<size_t>(operand.access.index)].base + index * sizeof token,
                  sizeof token);
      CHECK(token >= 0 && static_cast<size_t>(token) < place.rows_of_table);
      index = static_cast<size_t>(token);
    }
    kernels_.widen(at(index * place.columns + first), place.dtype, buffer + r * stride, count);
  }
  return {buffer, stride, false};
}

void TapeRunner::run_block(const std::vector<SlotPlace>& slots, size_t row, size_t rows,
                           size_t first, size_t count, const float* product, size_t product_stride,
                           float* scratch, float* elsewhere, bool again) const {
  const size_t stride = padded(count), each = rows_at_once(count) * stride;
  Value values[kMaxValues];
  float* const spread = scratch + rooms_ * each;
  for (size_t i = 0; i < tape_.values.size(); ++i) {
    const TapeOp& op = tape_.values[i];
    const Operand& from = tape_.values[i].load;
    float* out = scratch + room_[i] * each;
    if (op.loads()) {
      values[i] = from.access.kind == Access::kResult ? Value{product, product_stride, false}
                  : from.access.kind == Access::kVector && count < kWide && (rows > 1 || again)
                      ? repeated(from, slots, rows, first, count, out, again)
                      : operand(from, slots, row, rows, first, count, out);
      continue;
    }
    size_t out_stride = stride;
    if (made_in_ >= 0 && i + 1 == tape_.values.size()) {
      const SlotPlace& place = slots[static_cast<size_t>(made_in_)];
      if (elsewhere != nullptr) {
        out = elsewhere;
        out_stride = count;
      } else if (place.rounded == nullptr) {
        out = reinterpret_cast<float*>(place.base) + row * place.columns + first;
        out_stride = place.columns;
      }
    }
    values[i] = {out, out_stride, !op.full};
    compute(op, values, i, rows, count, out, spread);
  }
  for (const TapeOutput& output : tape_.outputs) {
    put(values[output.value], slots[static_cast<size_t>(output.slot)], row, rows, first, count,
        elsewhere, spread);
  }
}

// Row r of a value, or its one element spread over a row.
const float* TapeRunner::row_of(const Value& value, size_t r, size_t count, float* spread) {
  if (!value.per_row) return value.data + r * value.stride;
  std::fill_n(spread, count, value.data[r]);
  return spread;
}

// Makes values[index] in `out`.
void TapeRunner::compute(const TapeOp& made, const Value* values, size_t index, size_t rows,
                         size_t count, float* out, float* spread) const {
  const Op op = made.op;
  const Value& x = values[made.x];
  if (const CpuKernels::Reduce reduce = kernels_.reduce[op]; reduce != nullptr) {
    if (!x.per_row) return reduce(x.data, x.stride, rows, count, out);
    for (size_t r = 0; r < rows; ++r) reduce(row_of(x, r, count, spread), 0, 1, count, out + r);
    return;
  }
  const CpuKernels::Unary unary = kernels_.unary[op];
  const CpuKernels::Binary binary = kernels_.binary[op];
  const size_t out_stride = values[index].stride;
  const Value* const z = made.z < 0 ? nullptr : &values[made.z];
  if (!made.full) {
    z == nullptr ? unary(x.data, out, rows) : binary(x.data, z->data, out, rows);
    return;
  }
  if (out_stride == count && x.stride == count && !x.per_row &&
      (z == nullptr || (z->stride == count && !z->per_row))) {
    z == nullptr ? unary(x.data, out, rows * count) : binary(x.data, z->data, out, rows * count);
    return;
  }
  for (size_t r = 0; r < rows; ++r) {
    const float* const left = row_of(x, r, count, spread);
    float* const to = out + r * out_stride;
    if (z == nullptr) {
      unary(left, to, count);
    } else if (z->per_row) {
      kernels_.binary_by[op](left, z->data[r], to, count);
    } else {
      binary(left, z->data + r * z->stride, to, count);
    }
  }
}

// Puts a value where an output of the tape belongs, unless it was made there.
void TapeRunner::put(const Value& value, const SlotPlace& place, size_t row, size_t rows,
                     size_t first, size_t count, float* elsewhere, float* spread) {
  auto* const out = reinterpret_cast<float*>(place.base);
  if (value.per_row && place.columns == 1) {
    std::copy_n(value.data, rows, out + row);
    return;
  }
  for (size_t r = 0; r < rows; ++r) {
    const float* const from = row_of(value, r, count, spread);
    if (place.rounded != nullptr) {
      place.rounded->round({from, place.columns, row + r, first, count, place.base});
      continue;
    }
    float* const to =
        elsewhere != nullptr ? elsewhere + r * count : out + (row + r) * place.columns + first;
    if (from != to) std::memcpy(to, from, count * sizeof(float));
  }
}

}  // namespace split
