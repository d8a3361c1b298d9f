#include "device/cpu/tape_runner.h"

#include <cstring>

namespace split {
namespace {

constexpr size_t kMaxValues = 64;  // operands and instructions of one tape
constexpr size_t kFill = 16;       // floats of padding behind each scratch value: one vector

size_t padded(size_t columns) { return (columns + kFill - 1) / kFill * kFill; }

}  // namespace

TapeRunner::TapeRunner(const Tape& tape, const CpuKernels& kernels)
    : tape_(tape), kernels_(kernels), per_row_(tape.per_row()) {
  if (per_row_.size() > kMaxValues) {
    throw Error(ErrorKind::kDevice, cat("[cpu] expected at most ", kMaxValues,
                                        " values in one fused group, got ", per_row_.size()));
  }
}

// One buffer for each value, and two for broadcasts.
size_t TapeRunner::scratch_floats(size_t columns) const {
  return (per_row_.size() + 2) * padded(columns);
}

void TapeRunner::run(const std::vector<SlotPlace>& slots, size_t row, size_t first, size_t count,
                     const float* product, float* unnamed, float* scratch) const {
  const size_t stride = padded(count);
  Value values[kMaxValues];
  const auto buffer = [&](size_t index) { return scratch + index * stride; };

  for (size_t i = 0; i < tape_.operands.size(); ++i) {
    const Operand& operand = tape_.operands[i];
    if (operand.access == Access::kImmediate) {
      buffer(i)[0] = operand.value;
      values[i] = {buffer(i), true};
      continue;
    }
    if (operand.access == Access::kResult) {
      values[i] = {product, false};
      continue;
    }
    const SlotPlace& place = slots[static_cast<size_t>(operand.slot)];
    size_t element = first;
    if (operand.access == Access::kPerRow) {
      element = row;
    } else if (operand.access == Access::kRowwise) {
      element = row * place.columns + first;
    } else if (operand.access == Access::kGather) {
      int32_t index = 0;
      std::memcpy(&index, slots[static_cast<size_t>(operand.index)].base + row * sizeof index,
                  sizeof index);
      CHECK(index >= 0 && static_cast<size_t>(index) < place.rows_of_table);
      element = static_cast<size_t>(index) * place.columns + first;
    }
    const bool per_row = operand.access == Access::kPerRow;
    const std::byte* data = place.base + element * dtype_size(place.dtype);
    if (place.dtype == DType::kF32) {
      values[i] = {reinterpret_cast<const float*>(data), per_row};
    } else {
      kernels_.widen(data, place.dtype, buffer(i), per_row ? 1 : count);
      values[i] = {buffer(i), per_row};
    }
  }

  const auto spread = [&](const Value& value, size_t spare) {
    float* out = buffer(per_row_.size() + spare);
    for (size_t i = 0; i < count; ++i) out[i] = value.data[0];
    return out;
  };
  for (size_t i = 0; i < tape_.instructions.size(); ++i) {
    const Instruction& instruction = tape_.instructions[i];
    const size_t index = tape_.operands.size() + i;
    const auto op = static_cast<size_t>(instruction.op);
    const Value& x = values[instruction.x];
    float* out = buffer(index);
    values[index] = {out, per_row_[index]};
    if (const CpuKernels::Reduce reduce = kernels_.reduce[op]; reduce != nullptr) {
      out[0] = reduce(x.per_row ? spread(x, 0) : x.data, count);
      continue;
    }
    const size_t n = per_row_[index] ? 1 : count;
    if (instruction.z < 0) {
      kernels_.unary[op](x.data, out, n);
      continue;
    }
    const Value& z = values[instruction.z];
    const float* left = x.per_row && n > 1 ? spread(x, 0) : x.data;
    const float* right = z.per_row && n > 1 ? spread(z, 1) : z.data;
    kernels_.binary[op](left, right, out, n);
  }

  for (const TapeOutput& output : tape_.outputs) {
    const Value& value = values[output.value];
    if (output.slot < 0) {
      std::memcpy(unnamed, value.per_row ? spread(value, 0) : value.data, count * sizeof(float));
      continue;
    }
    const SlotPlace& place = slots[static_cast<size_t>(output.slot)];
    auto* out = reinterpret_cast<float*>(place.base);
    if (value.per_row && place.columns == 1) {
      out[row] = value.data[0];
    } else {
      std::memcpy(out + row * place.columns + first, value.per_row ? spread(value, 0) : value.data,
                  count * sizeof(float));
    }
  }
}

}  // namespace split
