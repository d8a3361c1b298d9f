#include "device/cpu/tape_runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace split {
namespace {

constexpr size_t kMaxValues = 64;  // operands and instructions of one tape
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

// Assigns each value its room in the scratch: a result takes that of one which is read no more.
// Operands keep theirs, as vectors stay from block to block.
std::vector<size_t> rooms_of(const Tape& tape) {
  const size_t operands = tape.operands.size(), count = tape.instructions.size();
  std::vector<size_t> last(operands + count);  // instruction that reads it; outputs are read after
  const auto reads = [&](int value, size_t when) {
    if (value >= 0) last[static_cast<size_t>(value)] = when;
  };
  for (size_t i = 0; i < count; ++i) {
    reads(tape.instructions[i].x, i);
    reads(tape.instructions[i].z, i);
  }
  for (const TapeOutput& output : tape.outputs) reads(output.value, count);
  std::vector<size_t> rooms(operands), free;
  std::iota(rooms.begin(), rooms.end(), size_t{0});
  size_t next = operands;
  for (size_t i = 0; i < count; ++i) {
    if (free.empty()) free.push_back(next++);
    rooms.push_back(free.back());
    free.pop_back();
    for (size_t value = operands; value < operands + i; ++value) {
      if (last[value] == i) free.push_back(rooms[value]);
    }
  }
  return rooms;
}

}  // namespace

TapeRunner::TapeRunner(const Tape& tape, const CpuKernels& kernels)
    : tape_(tape), kernels_(kernels), per_row_(tape.per_row()) {
  if (per_row_.size() > kMaxValues) {
    throw Error(ErrorKind::kDevice, cat("[cpu] expected at most ", kMaxValues,
                                        " values in one fused group, got ", per_row_.size()));
  }
  room_ = rooms_of(tape_);
  rooms_ = room_.empty() ? 0 : *std::ranges::max_element(room_) + 1;
  // No tape writes what it reads.
  for (const TapeOutput& output : tape_.outputs) {
    const bool last = static_cast<size_t>(output.value) + 1 == per_row_.size();
    if (last && !per_row_.back()) made_in_ = output.slot;
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
  for (size_t i = 0; i < tape_.operands.size(); ++i) {
    const Operand& from = tape_.operands[i];
    float* const buffer = scratch + i * each;
    values[i] = from.access.kind == Access::kResult ? Value{product, product_stride, false}
                : from.access.kind == Access::kVector && count < kWide && (rows > 1 || again)
                    ? repeated(from, slots, rows, first, count, buffer, again)
                    : operand(from, slots, row, rows, first, count, buffer);
  }
  float* const spread = scratch + rooms_ * each;
  for (size_t i = 0; i < tape_.instructions.size(); ++i) {
    const size_t index = tape_.operands.size() + i;
    float* out = scratch + room_[index] * each;
    size_t out_stride = stride;
    if (made_in_ >= 0 && i + 1 == tape_.instructions.size()) {
      const SlotPlace& place = slots[static_cast<size_t>(made_in_)];
      if (elsewhere != nullptr) {
        out = elsewhere;
        out_stride = count;
      } else if (place.rounded == nullptr) {
        out = reinterpret_cast<float*>(place.base) + row * place.columns + first;
        out_stride = place.columns;
      }
    }
    values[index] = {out, out_stride, per_row_[index]};
    run_instruction(tape_.instructions[i], values, index, rows, count, out, spread);
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
void TapeRunner::run_instruction(const Instruction& instruction, const Value* values, size_t index,
                                 size_t rows, size_t count, float* out, float* spread) const {
  const Op op = instruction.op;
  const Value& x = values[instruction.x];
  if (const CpuKernels::Reduce reduce = kernels_.reduce[op]; reduce != nullptr) {
    if (!x.per_row) return reduce(x.data, x.stride, rows, count, out);
    for (size_t r = 0; r < rows; ++r) reduce(row_of(x, r, count, spread), 0, 1, count, out + r);
    return;
  }
  const CpuKernels::Unary unary = kernels_.unary[op];
  const CpuKernels::Binary binary = kernels_.binary[op];
  const size_t out_stride = values[index].stride;
  const Value* const z = instruction.z < 0 ? nullptr : &values[instruction.z];
  if (per_row_[index]) {
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
