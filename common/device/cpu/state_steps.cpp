// The work of steps that keep a state of each sequence, and of a part of each head, on the CPU.
#include <algorithm>
#include <cmath>

#include "device/cpu/cpu_executable.h"

namespace split {

void CpuExecutable::run_head_part(size_t i, const RowBatch& /*batch*/, size_t rows) {
  const Step& step = program_.steps[i];
  const auto heads = step.attribute<size_t>(attributes::head_part::heads),
             first = step.attribute<size_t>(attributes::head_part::first),
             width = static_cast<size_t>(step.columns), inner = static_cast<size_t>(step.inner);
  const float* const x = floats(step.in(inputs::head_part::x));
  float* const y = floats(step.out());
  const size_t part = width / heads, each = std::max<size_t>(1, 4096 / width);
  pool_.run((rows + each - 1) / each, [&](size_t task) {
    for (size_t row = task * each; row < std::min(rows, (task + 1) * each); ++row) {
      for (size_t head = 0; head < heads; ++head) {
        std::copy_n(x + row * inner + head * (inner / heads) + first, part,
                    y + row * width + head * part);
      }
    }
  });
}

// A sequence's rows are one task, for some columns: each reads what the one before it left.
void CpuExecutable::run_conv_rows(size_t i, const RowBatch& batch, size_t /*rows*/) {
  const Step& step = program_.steps[i];
  const StateShape shape = state_of(step);
  const size_t width = shape.width(), parts = (width + kConvColumns - 1) / kConvColumns;
  runs_.find(batch, [](size_t, size_t) { return true; });
  pool_.run(runs_.count() * parts, [&](size_t task) {
    const size_t row = runs_.first(task / parts), first = task % parts * kConvColumns;
    ConvTask conv;
    conv.shape = shape;
    conv.x = floats(step.in(inputs::conv_rows::x)) + row * width + first;
    conv.x_stride = conv.y_stride = width;
    conv.rows = runs_.end(task / parts) - row;
    conv.position = static_cast<size_t>(batch.positions[row]);
    conv.w = loaded_[i].prepared.data();
    conv.first = first;
    conv.columns = std::min(kConvColumns, width - first);
    conv.state = state_at(row, step.in(inputs::conv_rows::state), batch);
    conv.y = floats(step.out()) + row * width + first;
    kernels_.conv_rows(conv);
  });
}

void CpuExecutable::run_delta(size_t i, const RowBatch& batch, size_t /*rows*/) {
  const Step& step = program_.steps[i];
  const StateShape shape = state_of(step);
  const auto width = static_cast<size_t>(step.columns);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape.key_dim)));
  runs_.find(batch, [](size_t, size_t) { return true; });
  pool_.run(runs_.count() * shape.key_heads, [&](size_t task) {
    const size_t run = task / shape.key_heads, row = runs_.first(run);
    DeltaTask delta;
    delta.shape = shape;
    delta.head = task % shape.key_heads;
    delta.x = floats(step.in(inputs::delta::x)) + row * shape.width();
    delta.x_stride = shape.width();
    delta.a = floats(step.in(inputs::delta::a)) + row * shape.value_heads;
    delta.b = floats(step.in(inputs::delta::b)) + row * shape.value_heads;
    delta.decay = loaded_[i].prepared.data();
    delta.dt_bias = floats(step.in(inputs::delta::dt_bias));
    delta.scale = scale;
    delta.rows = runs_.end(run) - row;
    delta.position = static_cast<size_t>(batch.positions[row]);
    delta.state = state_at(row, step.in(inputs::delta::state), batch);
    delta.y = floats(step.out()) + row * width;
    delta.y_stride = width;
    delta.scratch = thread_scratch(delta_scratch(shape));
    kernels_.delta(delta);
  });
}

}  // namespace split
