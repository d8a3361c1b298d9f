// The work of each kind of step on the CPU, and how it is cut into tasks.
#include <algorithm>

#include "device/cpu/cpu_executable.h"
#include "device/cpu/cpu_product.h"
#include "tensor/topk.h"

namespace split {
namespace {

using Matmul = inputs::matmul;
using Attention = inputs::attention;

}  // namespace

const ByOp<CpuExecutable::Run> CpuExecutable::kRun = [] {
  ByOp<Run> all;
  all[Op::k_group] = &CpuExecutable::run_group;
  all[Op::k_matmul] = &CpuExecutable::run_matmul;
  all[Op::k_attention] = &CpuExecutable::run_attention;
  all[Op::k_rotate] = all[Op::k_norm_rotate] = &CpuExecutable::run_rotate;
  all[Op::k_topk] = &CpuExecutable::run_topk;
  all[Op::k_head_part] = &CpuExecutable::run_head_part;
  all[Op::k_conv_rows] = &CpuExecutable::run_conv_rows;
  all[Op::k_delta] = &CpuExecutable::run_delta;
  return all;
}();

void CpuExecutable::run_group(size_t i, const RowBatch& /*batch*/, size_t rows) {
  const TapeRunner& tape = tapes_[i];
  const auto columns = static_cast<size_t>(program_.steps[i].columns);
  // Rows a task: some microseconds of work.
  const size_t each = std::max<size_t>(1, 4096 / columns);
  pool_.run((rows + each - 1) / each, [&](size_t task) {
    const size_t row = task * each;
    tape.run(places_, row, std::min(each, rows - row), 0, columns, nullptr, 0,
             thread_scratch(tape.scratch_floats(columns)));
  });
}

void CpuExecutable::run_topk(size_t i, const RowBatch& /*batch*/, size_t rows) {
  const Step& step = program_.steps[i];
  const auto inner = static_cast<size_t>(step.inner), width = static_cast<size_t>(step.columns);
  const float* const x = floats(step.in(inputs::topk::x));
  float* const out = floats(step.out());
  pool_.run(rows, [&](size_t row) {
    topk_row({x + row * inner, inner}, {out + row * width, width});
  });
}

void CpuExecutable::run_rotate(size_t i, const RowBatch& batch, size_t rows) {
  const Step& step = program_.steps[i];
  const Turn turn(step);
  const auto width = static_cast<size_t>(step.columns);
  const size_t half = turn.cos < 0 ? 0 : place_of(turn.cos).columns;
  const size_t each = std::max<size_t>(1, 4096 / width);  // rows of a task, and of a group
  pool_.run((rows + each - 1) / each, [&](size_t part) {
    for (size_t row = part * each; row < std::min(rows, (part + 1) * each); ++row) {
      const size_t position = static_cast<size_t>(batch.positions[row]) * half;
      RotateTask task;
      task.x = row_of(turn.x, row);
      task.y = floats(step.out()) + row * width;
      if (half > 0) task.cos = floats(turn.cos) + position, task.sin = floats(turn.sin) + position;
      task.half = half;
      task.heads = turn.heads;
      task.head_size = turn.head_dim;
      if (turn.normed) task.weight = floats(turn.weight);
      task.eps = turn.eps;
      task.plus = turn.plus;
      task.scratch = thread_scratch(turn.head_dim);
      kernels_.rotate(task);
    }
  });
}

void CpuExecutable::run_matmul(size_t i, const RowBatch& batch, size_t rows) {
  const Step& step = program_.steps[i];
  const TapeRunner& tape = tapes_[i];
  const Step* const stores_for = this->stores_for(i, batch);
  if (stores_for != nullptr) runs_.find_in_pages(batch);
  const Slot& matrix = slot(step.in(Matmul::w));
  const auto width = static_cast<size_t>(step.columns), inner = static_cast<size_t>(step.inner);
  CpuProduct product{kernels_};
  product.x = place_of(step.in(Matmul::x)).base;
  product.w = loaded_[i].matrix;
  product.stored = matrix.dtype;
  product.packing = packing(matrix);
  product.dtype = multiplied(matrix, batch.phase);
  product.transposed = matrix.transposed;
  product.inner = inner;
  product.width = width;
  if (rounds(matrix)) {
    product.rounded = &kernels_.steps(rounding(matrix, batch.phase), product.dtype, rows);
    if (place_of(step.in(Matmul::x)).rounded == nullptr) {
      round_rows(*product.rounded, floats(step.in(Matmul::x)), rows, inner);
      product.x = workspace_.rounded(CpuWorkspace::kPresent);
    }
  }
  // Wide tasks, unless threads would go without.
  const size_t wanted = 4 * size_t{pool_.threads()};
  const size_t each = width / kTaskColumns >= wanted ? kTaskColumns
                      : product.rounded != nullptr   ? kStripColumns
                                                     : kPanelColumns;
  product.each = each;
  const size_t column_tasks = (width + each - 1) / each;
  // Rows in blocks, so that they stay in L2 while a task's strips go through them, and their
  // product while its epilogue runs: one block a task, or all after strips that were dequantised
  // for them.
  const bool enough = column_tasks >= wanted;
  const size_t block = product.rows_of_block(enough);
  const size_t most = product.dequantises() && enough ? rows : block;
  const size_t row_tasks = (rows + most - 1) / most;
  pool_.run(column_tasks * row_tasks, [&](size_t task) {
    const size_t first = task / row_tasks * each, columns = std::min(each, width - first);
    const size_t begin = task % row_tasks * most, end = std::min(rows, begin + most);
    const size_t y_floats = std::min(block, end - begin) * each;
    const size_t kept_floats = stores_for != nullptr ? kPageTokens * each : 0;
    float* const scratch = thread_scratch(product.scratch_floats() + y_floats + kept_floats +
                                          tape.scratch_floats(columns));
    float* const y = scratch + product.scratch_floats();
    float* const rest = y + y_floats;
    product.begin(first, columns, scratch);
    for (size_t row = begin; row < end; row += block) {
      const size_t count = std::min(block, end - row);
      product.multiply(row, count, first, columns, scratch, y);
      if (stores_for != nullptr) {
        finish_and_keep(pages_of(*stores_for, batch), tape, row, count, first, columns, y, each,
                        rest);
      } else {
        tape.run(places_, row, count, first, columns, y, each, rest);
      }
    }
  });
}

void CpuExecutable::round_rows(const CpuKernels::Steps& steps, const float* x, size_t rows,
                               size_t inner) {
  const auto round = [&](size_t row) {
    steps.round(
        {x + row * inner, inner, row, 0, inner, workspace_.rounded(CpuWorkspace::kPresent)});
  };
  if (rows * inner >= 1 << 14) return pool_.run(rows, round);  // some microseconds of work
  for (size_t row = 0; row < rows; ++row) round(row);
}

RowPages CpuExecutable::pages_of(const Step& attention, const RowBatch& batch) const {
  return {kernels_,
          attention,
          place_of(attention.in(Attention::k_cache)),
          place_of(attention.in(Attention::v_cache)),
          batch,
          workspace_.limits().pages_per_sequence};
}

// Keeps every row's K and V: rows of one sequence see each other.
void CpuExecutable::keep_rows(const Step& step, const RowBatch& batch) {
  const size_t width = Heads(step).kv_width();
  const RowPages pages = pages_of(step, batch);
  runs_.find_in_pages(batch);
  pool_.run(runs_.count(), [&](size_t run) {
    const size_t row = runs_.first(run), rows = runs_.end(run) - row;
    for (const size_t input : {Attention::k, Attention::v}) {
      const Operand& from = step.inputs[input];
      pages.store_kv(input == Attention::v, row, rows, 0, width, row_of(from, row),
                     place_of(from.slot).columns);
    }
  });
}

// Runs the tape over a product, and stores keys and values into pages while they are in L1.
// Scratch: [kPageTokens, columns], and the tape's.
void CpuExecutable::finish_and_keep(const RowPages& pages, const TapeRunner& tape, size_t row,
                                    size_t rows, size_t first, size_t columns, const float* y,
                                    size_t stride, float* scratch) const {
  const size_t kv_width = Heads(pages.attention).kv_width();
  const size_t firsts[] = {first_column(pages.attention.inputs[Attention::k]),
                           first_column(pages.attention.inputs[Attention::v])};
  float* const tape_scratch = scratch + kPageTokens * columns;
  for (size_t from = first, to; from < first + columns; from = to) {
    to = first + columns;
    const size_t* inside = nullptr;  // the keys' first column, or the values'
    for (const size_t& kv : firsts) {
      if (from >= kv && from < kv + kv_width) inside = &kv;
      if (from < kv + kv_width) to = std::min(to, from < kv ? kv : kv + kv_width);
    }
    const float* const product = y + (from - first);
    if (inside == nullptr) {
      tape.run(places_, row, rows, from, to - from, product, stride, tape_scratch);
      continue;
    }
    size_t begin = row;
    for (size_t run = runs_.run_of(row); begin < row + rows; ++run) {
      const size_t end = std::min(runs_.end(run), row + rows);
      tape.run(places_, begin, end - begin, from, to - from, product + (begin - row) * stride,
               stride, tape_scratch, scratch);
      pages.store_kv(inside != firsts, begin, end - begin, from - *inside, to - from, scratch,
                     to - from);
      begin = end;
    }
  }
}

std::span<const KeyRange> CpuExecutable::windowed(const RowBatch& batch, const Heads& heads) {
  if (heads.window == 0) return batch.seen;
  windowed_.assign(batch.seen.begin(), batch.seen.end());
  for (size_t row = 0; row < windowed_.size(); ++row) {
    KeyRange& keys = windowed_[row];
    const auto own = static_cast<uint32_t>(batch.positions[row]);
    if (heads.both_ways) keys.end = std::min(keys.end, own + heads.window);
    const uint32_t last = heads.both_ways ? own + 1 : keys.end;
    keys.first = std::max(keys.first, last - std::min(last, heads.window));
  }
  return windowed_;
}

// Spreads the bias of each head by distance of a key behind its row, bias_.at at 0, as far as
// rows of the step have keys.
void CpuExecutable::spread_bias(const Step& step, const RowBatch& batch) {
  constexpr size_t kVector = 16;
  const size_t heads = Heads(step).count,
               most = std::ranges::max(batch.seen, {}, &KeyRange::end).end;
  const float* const bias = floats(step.in(Attention::bias));
  bias_.at = most - 1;
  bias_.stride = 2 * most + kVector;
  bias_.values.resize(heads * bias_.stride);
  for (size_t i = 0; i < bias_.stride; ++i) {
    const auto bucket = static_cast<size_t>(
        kernels_.relative_bucket(static_cast<int>(i) - static_cast<int>(bias_.at)));
    for (size_t h = 0; h < heads; ++h)
      bias_.values[h * bias_.stride + i] = bias[bucket * heads + h];
  }
}

void CpuExecutable::run_attention(size_t i, const RowBatch& batch, size_t /*rows*/) {
  const Step& step = program_.steps[i];
  bool stored = false;  // stored by their product
  for (size_t j = 0; j < i; ++j) stored = stored || stores_for(j, batch) == &step;
  if (!stored) keep_rows(step, batch);
  const Heads heads(step);
  const size_t channels = heads.width();
  const Operand& q = step.inputs[Attention::q];
  const SlotPlace& out = place_of(step.out());
  const DType dtype = place_of(step.in(Attention::k_cache)).dtype;
  CHECK(batch.seen.size() == batch.rows);
  const std::span<const KeyRange> seen_keys = windowed(batch, heads);
  if (heads.biased) spread_bias(step, batch);
  // Rows of one sequence at consecutive positions share the reading of its pages.
  runs_.find(batch, [&](size_t row, size_t first) {
    const KeyRange &before = seen_keys[row - 1], &now = seen_keys[row];
    return row - first < attend_rows(heads.group()) && now.first >= before.first &&
           now.end >= before.end;
  });
  const RowPages pages = pages_of(step, batch);
  // Heads together, unless threads would go without: they lie side by side.
  const size_t work = runs_.count() * heads.kv;
  const size_t wanted = 4 * size_t{pool_.threads()};
  const size_t each = std::clamp<size_t>(work / wanted, 1, heads.kv);
  const size_t parts = (heads.kv + each - 1) / each;
  pool_.run(runs_.count() * parts, [&](size_t task) {
    float* scratch = thread_scratch(attend_scratch(heads.dim) + kAttendRows * channels);
    const size_t run = task / parts, head = task % parts * each, row = runs_.first(run);
    const size_t first = head * heads.group() * heads.dim;  // column of q and of the result
    AttendTask attend;
    attend.q = row_of(q, row) + first;
    attend.q_stride = place_of(q.slot).columns;
    attend.rows = runs_.end(run) - row;
    attend.seen = &seen_keys[row];
    attend.keys = place_of(step.in(Attention::k_cache)).base;
    attend.values = place_of(step.in(Attention::v_cache)).base;
    attend.dtype = dtype;
    attend.pages = pages.of(row);
    attend.kv_width = heads.kv_width();
    attend.heads = std::min(each, heads.kv - head);
    attend.group = heads.group();
    attend.head_offset = head * heads.dim;
    attend.head_size = heads.dim;
    attend.scale = step.attribute<float>(attributes::attention::scale);
    attend.cap = step.attribute<float>(attributes::attention::cap);
    if (heads.biased) {
      attend.bias = bias_.values.data() + head * heads.group() * bias_.stride + bias_.at -
                    static_cast<size_t>(batch.positions[row]);
      attend.bias_stride = bias_.stride;
    }
    attend.out = reinterpret_cast<float*>(out.base) + row * channels + first;
    attend.out_stride = channels;
    attend.scratch = scratch;
    const size_t width = attend.heads * heads.group() * heads.dim;
    if (out.rounded != nullptr) {
      attend.out = scratch + attend_scratch(heads.dim);
      attend.out_stride = width;
    }
    kernels_.attend(attend, workspace_.limits().int8 == Int8Rows::kAll);
    for (size_t r = 0; out.rounded != nullptr && r < attend.rows; ++r) {
      out.rounded->round({attend.out + r * width, channels, row + r, first, width, out.base});
    }
  });
}

}  // namespace split
