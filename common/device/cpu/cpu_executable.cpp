// Loads a Program and runs its steps, one after the other. The work of a step is in cpu_steps.cpp.
#include "device/cpu/cpu_executable.h"

#include <algorithm>

#include "base/resources/fibres.h"
#include "tensor/tensor.h"

namespace split {
namespace {

CpuBuffer* bound(const Slot& slot, std::span<const Binding> bindings) {
  for (const Binding& binding : bindings) {
    if (binding.name == slot.name) return static_cast<CpuBuffer*>(binding.buffer);
  }
  return nullptr;
}

}  // namespace

CpuExecutable::CpuExecutable(const Program& program, CpuWorkspace& workspace,
                             std::span<const Binding> bindings, const CpuKernels& kernels,
                             ThreadPool& pool)
    : program_(program), workspace_(workspace), kernels_(kernels), pool_(pool) {
  for (const Slot& slot : program_.slots) {
    is_read_.push_back(!readers(program_, static_cast<int>(places_.size())).empty());
    places_.push_back(place(slot, bindings));
    outputs_.push_back(slot.kind == SlotKind::kOutput ? bound(slot, bindings) : nullptr);
  }
  rounded_ = bf16_temporaries(program_, [&](const Slot& slot) { return rounds(slot); });
  for (size_t i = 0; i < rounded_.size(); ++i) {
    if (rounded_[i].matrix >= 0) {
      workspace_.reserve_rounded(rounded_[i].buffer, places_[i].columns);
    }
  }
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    const Step& step = program_.steps[i];
    Loaded& loaded = loaded_.emplace_back();
    loaded.stores_kv = may_store_kv(i);
    loaded.prepared = prepared(step);
    tapes_.emplace_back(step.tape, kernels);
    for (const auto& value : step.tape.values) {
      if (value.load.slot < 0) continue;
      CpuBuffer* const buffer = bound(slot(value.load.slot), bindings);
      if (buffer != nullptr) buffer->read_in_place();
    }
    if (step.op == Op::k_matmul) loaded.matrix = matrix(step, bindings);
  }
}

SlotPlace CpuExecutable::place(const Slot& slot, std::span<const Binding> bindings) const {
  SlotPlace result;
  result.dtype = slot.dtype;
  result.columns = static_cast<size_t>(slot.dims.back());
  if (slot.dims.size() == 2) result.rows_of_table = static_cast<size_t>(slot.dims[0]);
  if (slot.dims.size() == 2 && slot.dims[0] < 0)
    result.rows_of_table = workspace_.limits().most_rows();
  if (slot.kind == SlotKind::kTemp) {
    result.base = workspace_.arena() + slot.offset * workspace_.limits().most_rows();
    return result;
  }
  if (slot.dtype == DType::kI32) return result;  // a symbol: set by each run
  if (CpuBuffer* const buffer = bound(slot, bindings)) {
    result.base = buffer->data();
    // Vectors were widened at upload.
    if (slot.kind == SlotKind::kWeight && slot.dims.size() == 1) result.dtype = DType::kF32;
    return result;
  }
  throw Error(ErrorKind::kDevice,
              cat("[cpu] program ", program_.name, ": slot '", slot.name, "' is bound to nothing"));
}

const std::byte* CpuExecutable::matrix(const Step& step, std::span<const Binding> bindings) const {
  const Slot& matrix = slot(step.in(inputs::matmul::w));
  CpuBuffer* const buffer = bound(matrix, bindings);
  const auto inner = static_cast<size_t>(step.inner), columns = static_cast<size_t>(step.columns);
  if (buffer != nullptr && matrix.transposed && !rounds(matrix)) {
    buffer->read_in_place();
    return buffer->data();
  }
  if (buffer != nullptr && matrix.kind == SlotKind::kWeight && rounds(matrix)) {
    workspace_.reserve_rounded(CpuWorkspace::kPresent, inner);
    return buffer->packed_strips(matrix.dtype, packing(matrix), matrix.transposed, inner, columns,
                                 pool_);
  }
  if (buffer != nullptr && matrix.kind == SlotKind::kWeight) {
    return buffer->packed(matrix.dtype, inner, columns, pool_);
  }
  throw Error(ErrorKind::kDevice,
              cat("[cpu] program ", program_.name, ": matrix '", matrix.name, "' is no weight"));
}

bool CpuExecutable::may_store_kv(size_t i) const {
  const Step& step = program_.steps[i];
  if (step.op != Op::k_matmul || !step.attention) return false;
  const Step& attention = program_.steps[*step.attention];
  if (attention.in(inputs::attention::k) != attention.in(inputs::attention::v)) return false;
  const DType dtype = place_of(attention.in(inputs::attention::k_cache)).dtype;
  return rounds(slot(step.in(inputs::matmul::w))) &&
         (dtype == DType::kBF16 || dtype == DType::kQ8_0) &&
         Heads(attention).kv_width() % kStripColumns == 0 &&
         first_column(attention.inputs[inputs::attention::k]) % kStripColumns == 0 &&
         first_column(attention.inputs[inputs::attention::v]) % kStripColumns == 0;
}

std::vector<float> CpuExecutable::prepared(const Step& step) const {
  std::vector<float> made;
  if (step.op == Op::k_delta) {
    made.resize(state_of(step).value_heads);
    kernels_.decays(floats(step.in(inputs::delta::a_log)), made.size(), made.data());
  } else if (step.op == Op::k_conv_rows) {
    const StateShape shape = state_of(step);
    const SlotPlace& w = place_of(step.in(inputs::conv_rows::w));
    std::vector<float> wide(shape.width() * shape.taps);
    kernels_.widen(w.base, w.dtype, wide.data(), wide.size());
    made.resize(wide.size());
    for (size_t i = 0; i < wide.size(); ++i) {
      made[i % shape.taps * shape.width() + i / shape.taps] = wide[i];
    }
  }
  return made;
}

size_t CpuExecutable::out_slot(const RowBatch& batch) const {
  for (size_t i = 0; batch.out != nullptr && i < outputs_.size(); ++i) {
    if (outputs_[i] != batch.out || is_read_[i]) continue;
    const Slot& slot = program_.slots[i];
    const size_t rows = slot.dims[0] == kOutRows ? batch.out_rows.size() : batch.rows;
    const bool whole = slot.dims.size() == 2 && slot.dims[0] < 0 && batch.out_offset == 0 &&
                       batch.out_bytes.size() == rows * places_[i].columns * sizeof(float);
    if (whole) return i;
  }
  return outputs_.size();
}

void CpuExecutable::run(const RowBatch& batch, const std::vector<int32_t>& out_rows, bool last,
                        StepTimes& times) {
  const size_t direct = last ? out_slot(batch) : outputs_.size();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] == nullptr) continue;
    places_[i].base = i == direct ? batch.out_bytes.data() : outputs_[i]->data();
  }
  const int32_t* const symbols[kStepInputs] = {batch.tokens.data(), batch.positions.data(),
                                               batch.marks.data(), out_rows.data()};
  for (size_t i = 0; i < program_.slots.size(); ++i) {
    const Slot& slot = program_.slots[i];
    if (slot.kind != SlotKind::kInput || slot.dtype != DType::kI32) continue;
    const int32_t* symbol = symbols[static_cast<size_t>(step_input_of(slot))];
    places_[i].base = reinterpret_cast<std::byte*>(const_cast<int32_t*>(symbol));
  }
  for (size_t i = 0; i < rounded_.size(); ++i) {
    const RoundedSlot& rounded = rounded_[i];
    if (rounded.matrix < 0) continue;
    places_[i].base = workspace_.rounded(rounded.buffer);
    const Slot& matrix = slot(rounded.matrix);
    places_[i].rounded =
        &kernels_.steps(rounding(matrix, batch.phase), multiplied(matrix, batch.phase),
                        rounded.rows == kOutRows ? out_rows.size() : batch.rows);
  }
  for (size_t i = 0; i < program_.steps.size(); ++i) {
    const Step& step = program_.steps[i];
    const size_t rows = step.rows == kOutRows ? out_rows.size() : batch.rows;
    if (rows == 0) continue;
    times.timed(step, [&] { (this->*kRun[step.op])(i, batch, rows); });
    fibres::yield();  // no scratch is in use between steps
  }
}

}  // namespace split
