// A Program on the CPU: rows are a loop bound, weights are read where they are mapped, work is cut
// over the pool's threads in ways that change no sum. For cpu_device.cpp only.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "device/cpu/bf16_temporaries.h"
#include "device/cpu/cpu_product.h"
#include "device/cpu/cpu_workspace.h"
#include "device/cpu/kv_rows.h"
#include "device/cpu/step_times.h"
#include "device/cpu/tape_runner.h"
#include "device/device.h"
#include "tensor/topk.h"

namespace split {

class CpuExecutable : public Executable {
 public:
  CpuExecutable(const Program& program, CpuWorkspace& workspace, std::span<const Binding> bindings,
                const CpuKernels& kernels, ThreadPool& pool)
      : program_(program), workspace_(workspace), kernels_(kernels), pool_(pool) {
    for (const Slot& slot : program_.slots) {
      places_.push_back(place(slot, bindings));
      outputs_.push_back(slot.kind == SlotKind::kOutput ? bound(slot, bindings) : nullptr);
    }
    rounded_ = rounded_slots(program_, [&](const Slot& slot) { return rounds(slot); });
    for (size_t i = 0; i < rounded_.size(); ++i) {
      if (rounded_[i].matrix >= 0) {
        workspace_.reserve_rounded(rounded_[i].buffer, places_[i].columns);
      }
    }
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      keeps_for_.push_back(may_keep_for(i));
      tapes_.emplace_back(step.tape, kernels);
      for (const Operand& operand : step.tape.operands) {
        if (operand.slot < 0) continue;
        CpuBuffer* const buffer =
            bound(program_.slots[static_cast<size_t>(operand.slot)], bindings);
        if (buffer != nullptr) buffer->read_in_place();
      }
      matrices_.push_back(step.op == Op::k_matmul ? matrix(step, bindings) : nullptr);
      if (!step.prologue.empty()) {
        throw Error(ErrorKind::kDevice,
                    "[cpu] a matmul with a prologue: compile without that rule");
      }
    }
  }

  // Whether the last of a run writes what is wanted of `batch.out` where it is wanted: a step's
  // logits are megabytes.
  bool writes_out(const RowBatch& batch) const { return out_slot(batch) < outputs_.size(); }

  // `last` of a run.
  void run(const RowBatch& batch, const std::vector<int32_t>& out_rows, bool last,
           StepTimes& times) {
    const size_t direct = last ? out_slot(batch) : outputs_.size();
    for (size_t i = 0; i < outputs_.size(); ++i) {
      if (outputs_[i] == nullptr) continue;
      places_[i].base = i == direct ? batch.out_bytes.data() : outputs_[i]->data();
    }
    for (size_t i = 0; i < program_.slots.size(); ++i) {
      const Slot& slot = program_.slots[i];
      if (slot.kind != SlotKind::kInput || slot.dtype != DType::kI32) continue;
      const int32_t* symbol = slot.name == "tokens"      ? batch.tokens.data()
                              : slot.name == "positions" ? batch.positions.data()
                                                         : out_rows.data();
      places_[i].base = reinterpret_cast<std::byte*>(const_cast<int32_t*>(symbol));
    }
    for (size_t i = 0; i < rounded_.size(); ++i) {
      const RoundedSlot& slot = rounded_[i];
      if (slot.matrix < 0) continue;
      places_[i].base = workspace_.rounded(slot.buffer);
      const Slot& matrix = program_.slots[static_cast<size_t>(slot.matrix)];
      places_[i].rounded = &kernels_.steps(rounding(matrix), multiplied(matrix, batch.phase),
                                           slot.rows == kOutRows ? out_rows.size() : batch.rows);
    }
    for (size_t i = 0; i < program_.steps.size(); ++i) {
      const Step& step = program_.steps[i];
      const size_t rows = step.rows == kOutRows ? out_rows.size() : batch.rows;
      if (rows == 0) continue;
      times.timed(step, [&] {
        switch (step.op) {
          case Op::k_group:
            return run_group(step, tapes_[i], rows);
          case Op::k_matmul:
            return run_matmul(step, tapes_[i], matrices_[i], keeps_for(i, batch), batch, rows);
          case Op::k_attention:
            if (i == 0 || keeps_for(i - 1, batch) == nullptr) keep_rows(step, batch);
            return run_attention(step, batch);
          case Op::k_topk:
            return run_topk(step, rows);
          default:
            CHECK(false);
        }
      });
    }
  }

 private:
  using Matmul = inputs::matmul;
  using Attention = inputs::attention;

  static CpuBuffer* bound(const Slot& slot, std::span<const Binding> bindings) {
    for (const Binding& binding : bindings) {
      if (binding.name == slot.name) return static_cast<CpuBuffer*>(binding.buffer);
    }
    return nullptr;
  }

  // The output that is all of what is wanted and that no step reads, or none.
  size_t out_slot(const RowBatch& batch) const {
    for (size_t i = 0; batch.out != nullptr && i < outputs_.size(); ++i) {
      if (outputs_[i] != batch.out) continue;
      const Slot& slot = program_.slots[i];
      const size_t rows = slot.dims[0] == kOutRows ? batch.out_rows.size() : batch.rows;
      const bool whole = slot.dims.size() == 2 && slot.dims[0] < 0 && batch.out_offset == 0 &&
                         batch.out_bytes.size() == rows * places_[i].columns * sizeof(float);
      const bool read = std::ranges::any_of(program_.steps, [&](const Step& step) {
        return reads_floats(step, static_cast<int>(i)) ||
               (step.op == Op::k_matmul && step.in(Matmul::x) == static_cast<int>(i));
      });
      if (whole && !read) return i;
    }
    return outputs_.size();
  }

  SlotPlace place(const Slot& slot, std::span<const Binding> bindings) const {
    SlotPlace result;
    result.dtype = slot.dtype;
    result.columns = static_cast<size_t>(slot.dims.back());
    if (slot.dims.size() == 2) result.rows_of_table = static_cast<size_t>(slot.dims[0]);
    if (slot.dims.size() == 2 && slot.dims[0] < 0) result.rows_of_table = workspace_.limits().rows;
    if (slot.kind == SlotKind::kTemp) {
      result.base = workspace_.arena() + slot.offset * workspace_.limits().rows;
      return result;
    }
    if (slot.dtype == DType::kI32) return result;  // a symbol: set by each run
    if (CpuBuffer* const buffer = bound(slot, bindings)) {
      result.base = buffer->data();
      // Vectors were widened when they came in.
      if (slot.kind == SlotKind::kWeight && slot.dims.size() == 1) result.dtype = DType::kF32;
      return result;
    }
    throw Error(ErrorKind::kDevice, cat("[cpu] program ", program_.name, ": slot '", slot.name,
                                        "' is bound to nothing"));
  }

  // Whether a product by this matrix rounds its rows, and to what.
  bool rounds(const Slot& matrix) const {
    return is_quantised(matrix.dtype) ||
           (matrix.dtype == DType::kBF16 && workspace_.limits().matrix);
  }
  Rounding rounding(const Slot& matrix) const {
    return workspace_.limits().int8 && is_quantised(matrix.dtype) ? Rounding::kInt8
                                                                  : Rounding::kBF16;
  }
  // What a product multiplies its numbers as. Prompt rows are many: for them blocks become BF16
  // first, which is then done once for all of them.
  DType multiplied(const Slot& matrix, Phase phase) const {
    const bool dequantised = phase == Phase::kPrompt && is_quantised(matrix.dtype) &&
                             rounding(matrix) == Rounding::kBF16;
    return dequantised ? DType::kBF16 : matrix.dtype;
  }
  bool in_place(const Slot& matrix) const { return matrix.transposed && !rounds(matrix); }

  // What a matmul reads: a transposed matrix of floats where it lies, another packed.
  const std::byte* matrix(const Step& step, std::span<const Binding> bindings) const {
    const Slot& slot = program_.slots[static_cast<size_t>(step.in(Matmul::w))];
    CpuBuffer* const buffer = bound(slot, bindings);
    if (buffer != nullptr && in_place(slot)) {
      buffer->read_in_place();
      return buffer->data();
    }
    if (buffer != nullptr && slot.kind == SlotKind::kWeight && rounds(slot)) {
      workspace_.reserve_rounded(CpuWorkspace::kPresent, static_cast<size_t>(step.inner));
      return buffer->packed_strips(slot.dtype, rounding(slot), slot.transposed,
                                   static_cast<size_t>(step.inner),
                                   static_cast<size_t>(step.columns), pool_);
    }
    if (buffer != nullptr && slot.kind == SlotKind::kWeight) {
      return buffer->packed(slot.dtype, static_cast<size_t>(step.inner),
                            static_cast<size_t>(step.columns), pool_);
    }
    throw Error(ErrorKind::kDevice,
                cat("[cpu] program ", program_.name, ": matrix '", slot.name, "' is no weight"));
  }

  const SlotPlace& place_of(int slot) const { return places_[static_cast<size_t>(slot)]; }
  float* floats(int slot) const { return reinterpret_cast<float*>(place_of(slot).base); }

  void run_group(const Step& step, const TapeRunner& tape, size_t rows) {
    const auto columns = static_cast<size_t>(step.columns);
    const size_t each =
        std::max<size_t>(1, 4096 / columns);  // rows a task: some microseconds of work
    pool_.run((rows + each - 1) / each, [&](size_t task) {
      const size_t row = task * each;
      tape.run(places_, row, std::min(each, rows - row), 0, columns, nullptr, 0,
               thread_scratch(tape.scratch_floats(columns)));
    });
  }

  void run_topk(const Step& step, size_t rows) {
    const auto inner = static_cast<size_t>(step.inner), width = static_cast<size_t>(step.columns);
    pool_.run(rows, [&](size_t row) {
      topk_row({floats(step.in(inputs::topk::x)) + row * inner, inner},
               {floats(step.out()) + row * width, width});
    });
  }

  // The attention whose keys and values the product of step i may keep: its result goes nowhere
  // else, and tasks have whole strips of its columns, which are whole steps of a page.
  const Step* may_keep_for(size_t i) const {
    if (i + 1 >= program_.steps.size()) return nullptr;
    const Step &step = program_.steps[i], &next = program_.steps[i + 1];
    if (step.op != Op::k_matmul || next.op != Op::k_attention) return nullptr;
    const auto slot = [&](int index) -> const Slot& {
      return program_.slots[static_cast<size_t>(index)];
    };
    const bool made_for_it = step.rows == next.rows && step.tape.outputs.size() == 1 &&
                             step.tape.outputs[0].slot == next.in(Attention::qkv) &&
                             slot(next.in(Attention::qkv)).kind == SlotKind::kTemp;
    const bool read = std::ranges::any_of(program_.steps, [&](const Step& other) {
      return &other != &next &&
             (reads_floats(other, next.in(Attention::qkv)) ||
              (other.op == Op::k_matmul && other.in(Matmul::x) == next.in(Attention::qkv)));
    });
    const DType dtype = place_of(next.in(Attention::k_cache)).dtype;
    const bool in_steps = (dtype == DType::kBF16 || dtype == DType::kQ8_0) &&
                          next.columns % static_cast<int64_t>(kStripColumns) == 0;
    return made_for_it && !read && rounds(slot(step.in(Matmul::w))) && in_steps ? &next : nullptr;
  }

  // Of generated rows each has a page of its own, and nothing is gained.
  const Step* keeps_for(size_t i, const RowBatch& batch) const {
    return batch.phase == Phase::kPrompt ? keeps_for_[i] : nullptr;
  }

  void run_matmul(const Step& step, const TapeRunner& tape, const std::byte* w,
                  const Step* keeps_for, const RowBatch& batch, size_t rows) {
    if (keeps_for != nullptr) runs_.find_in_pages(batch);
    const Slot& matrix = program_.slots[static_cast<size_t>(step.in(Matmul::w))];
    const auto width = static_cast<size_t>(step.columns), inner = static_cast<size_t>(step.inner);
    CpuProduct product{kernels_};
    product.x = place_of(step.in(Matmul::x)).base;
    product.w = w;
    product.stored = matrix.dtype;
    product.dtype = multiplied(matrix, batch.phase);
    product.transposed = matrix.transposed;
    product.inner = inner;
    product.width = width;
    if (rounds(matrix)) {
      product.rounded = &kernels_.steps(rounding(matrix), product.dtype, rows);
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
    // product while its epilogue runs: one of them a task, or all after strips that were
    // dequantised for them.
    const bool enough = column_tasks >= wanted;
    const size_t block = product.rows_of_block(enough);
    const size_t most = product.dequantises() && enough ? rows : block;
    const size_t row_tasks = (rows + most - 1) / most;
    pool_.run(column_tasks * row_tasks, [&](size_t task) {
      const size_t first = task / row_tasks * each, columns = std::min(each, width - first);
      const size_t begin = task % row_tasks * most, end = std::min(rows, begin + most);
      const size_t y_floats = std::min(block, end - begin) * each;
      const size_t kept_floats = keeps_for != nullptr ? kPageTokens * each : 0;
      float* const scratch = thread_scratch(product.scratch_floats() + y_floats + kept_floats +
                                            tape.scratch_floats(columns));
      float* const y = scratch + product.scratch_floats();
      float* const rest = y + y_floats;
      product.begin(first, columns, scratch);
      for (size_t row = begin; row < end; row += block) {
        const size_t count = std::min(block, end - row);
        product.multiply(row, count, first, columns, scratch, y);
        if (keeps_for != nullptr) {
          finish_and_keep(pages_of(*keeps_for, batch), tape, row, count, first, columns, y, each,
                          rest);
        } else {
          tape.run(places_, row, count, first, columns, y, each, rest);
        }
      }
    });
  }

  void round_rows(const CpuKernels::Steps& steps, const float* x, size_t rows, size_t inner) {
    const auto round = [&](size_t row) {
      steps.round(
          {x + row * inner, inner, row, 0, inner, workspace_.rounded(CpuWorkspace::kPresent)});
    };
    if (rows * inner >= 1 << 14) return pool_.run(rows, round);  // some microseconds of work
    for (size_t row = 0; row < rows; ++row) round(row);
  }

  RowPages pages_of(const Step& attention, const RowBatch& batch) const {
    return {kernels_,
            attention,
            place_of(attention.in(Attention::k_cache)),
            place_of(attention.in(Attention::v_cache)),
            batch,
            workspace_.limits().pages_per_sequence};
  }

  // Every row's K and V: rows of one sequence see each other.
  void keep_rows(const Step& step, const RowBatch& batch) {
    const auto channels = static_cast<size_t>(step.columns);
    const RowPages pages = pages_of(step, batch);
    runs_.find_in_pages(batch);
    pool_.run(runs_.count(), [&](size_t run) {
      const size_t row = runs_.first(run), rows = runs_.end(run) - row;
      const float* const qkv = floats(step.in(Attention::qkv)) + row * 3 * channels;
      for (const size_t column : {channels, 2 * channels}) {
        pages.keep(row, rows, column, channels, qkv + column, 3 * channels);
      }
    });
  }

  // The tape over a product, of which keys and values go into their pages while they are in L1.
  // Scratch: [kPageTokens, columns], and the tape's.
  void finish_and_keep(const RowPages& pages, const TapeRunner& tape, size_t row, size_t rows,
                       size_t first, size_t columns, const float* y, size_t stride,
                       float* scratch) const {
    const auto channels = static_cast<size_t>(pages.attention.columns);
    float* const tape_scratch = scratch + kPageTokens * columns;
    for (size_t from = first, to; from < first + columns; from = to) {
      to = std::min(first + columns, (from / channels + 1) * channels);
      const float* const product = y + (from - first);
      if (from < channels) {
        tape.run(places_, row, rows, from, to - from, product, stride, tape_scratch);
        continue;
      }
      size_t begin = row;
      for (size_t run = runs_.run_of(row); begin < row + rows; ++run) {
        const size_t end = std::min(runs_.end(run), row + rows);
        tape.run(places_, begin, end - begin, from, to - from, product + (begin - row) * stride,
                 stride, tape_scratch, scratch);
        pages.keep(begin, end - begin, from, to - from, scratch, to - from);
        begin = end;
      }
    }
  }

  void run_attention(const Step& step, const RowBatch& batch) {
    const auto channels = static_cast<size_t>(step.columns);
    const auto heads = step.attribute<size_t>(attributes::attention::heads);
    const size_t head_size = channels / heads;
    const float* qkv = floats(step.in(Attention::qkv));
    const SlotPlace& out = place_of(step.out());
    const DType dtype = place_of(step.in(Attention::k_cache)).dtype;
    // Rows of one sequence at positions that follow each other share the reading of its pages.
    runs_.find(batch, [&](size_t row, size_t first) { return row - first < kAttendRows; });
    const RowPages pages = pages_of(step, batch);
    // Heads together, unless threads would go without: they lie side by side.
    const size_t work = runs_.count() * heads;
    const size_t wanted = 4 * size_t{pool_.threads()};
    const size_t each = std::clamp<size_t>(work / wanted, 1, heads);
    const size_t parts = (heads + each - 1) / each;
    pool_.run(runs_.count() * parts, [&](size_t task) {
      float* scratch = thread_scratch(attend_scratch(head_size) + kAttendRows * channels);
      const size_t run = task / parts, head = task % parts * each, row = runs_.first(run);
      AttendTask attend;
      attend.q = qkv + row * 3 * channels + head * head_size;
      attend.q_stride = 3 * channels;
      attend.rows = runs_.end(run) - row;
      attend.position = static_cast<size_t>(batch.positions[row]);
      attend.keys = place_of(step.in(Attention::k_cache)).base;
      attend.values = place_of(step.in(Attention::v_cache)).base;
      attend.dtype = dtype;
      attend.pages = pages.of(row);
      attend.channels = channels;
      attend.heads = std::min(each, heads - head);
      attend.head_offset = head * head_size;
      attend.head_size = head_size;
      attend.scale = step.attribute<float>(attributes::attention::scale);
      attend.out = reinterpret_cast<float*>(out.base) + row * channels + head * head_size;
      attend.out_stride = channels;
      attend.scratch = scratch;
      const size_t width = attend.heads * head_size;
      if (out.rounded != nullptr) {
        attend.out = scratch + attend_scratch(head_size);
        attend.out_stride = width;
      }
      kernels_.attend(attend);
      for (size_t r = 0; out.rounded != nullptr && r < attend.rows; ++r) {
        out.rounded->round(
            {attend.out + r * width, channels, row + r, head * head_size, width, out.base});
      }
    });
  }

  Program program_;
  CpuWorkspace& workspace_;
  const CpuKernels& kernels_;
  ThreadPool& pool_;
  std::vector<SlotPlace> places_;
  std::vector<CpuBuffer*> outputs_;   // of the slots: null, of those that are no output
  std::vector<RoundedSlot> rounded_;  // of the slots
  std::vector<TapeRunner> tapes_;
  std::vector<const std::byte*> matrices_;  // of the steps that are a matmul
  std::vector<const Step*> keeps_for_;      // of the steps: an attention, or null
  RowRuns runs_;                            // of the present step
};

}  // namespace split
