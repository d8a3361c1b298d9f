// A Program on the CPU: rows are a loop bound, weights are read where they are mapped, work is
// divided among the pool's threads in ways that change no sum.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/resources/thread_pool.h"
#include "device/cpu/bf16_temporaries.h"
#include "device/cpu/cpu_workspace.h"
#include "device/cpu/kv_rows.h"
#include "device/cpu/step_times.h"
#include "device/cpu/tape_runner.h"
#include "device/device.h"

namespace split {

class CpuExecutable : public Executable {
 public:
  // Throws Error(kDevice) for a program that the CPU cannot run.
  CpuExecutable(const Program& program, CpuWorkspace& workspace, std::span<const Binding> bindings,
                const CpuKernels& kernels, ThreadPool& pool);

  // Whether the last program of a run can write straight into `batch.out_bytes`: a step's logits
  // are megabytes.
  bool writes_out(const RowBatch& batch) const { return out_slot(batch) < outputs_.size(); }

  // `batch`: with its own states alone. `last`: the last program of a run.
  void run(const RowBatch& batch, const std::vector<int32_t>& out_rows, bool last,
           StepTimes& times);

  static bool has_kernel(Op op) { return kRun[op] != nullptr; }

 private:
  // --- Loading
  SlotPlace place(const Slot& slot, std::span<const Binding> bindings) const;
  // Finds the matrix of a matmul: transposed floats in place, others packed.
  const std::byte* matrix(const Step& step, std::span<const Binding> bindings) const;
  // Whether the product of step i makes all keys or values of an attention and may store them:
  // tasks have whole strips of its columns, which must be whole steps of a page.
  bool may_store_kv(size_t i) const;
  // Makes what a step that keeps a state reads of its weights: a convolution's as [taps, width], or
  // a head's decays.
  std::vector<float> prepared(const Step& step) const;
  // The output that is all the wanted rows and that no step reads, or none.
  size_t out_slot(const RowBatch& batch) const;

  // --- Rounding of a product's rows
  // Whether a product by this matrix rounds its rows, and to what.
  bool rounds(const Slot& matrix) const {
    return is_quantised(matrix.dtype) ||
           (matrix.dtype == DType::kBF16 && workspace_.limits().matrix);
  }
  Rounding rounding(const Slot& matrix, Phase phase) const {
    const Int8Rows int8 = workspace_.limits().int8;
    const bool some =
        int8 == Int8Rows::kAll || (int8 == Int8Rows::kGenerated && phase == Phase::kGenerate);
    return some && is_quantised(matrix.dtype) ? Rounding::kInt8 : Rounding::kBF16;
  }
  // The rounding that its matrix is packed for: one copy, whatever the phase.
  Rounding packing(const Slot& matrix) const { return rounding(matrix, Phase::kGenerate); }
  // The type that a product multiplies by. Prompt rows are many: blocks become BF16 first, once for
  // all of them. Super-blocks always do. Rows in int8 take blocks directly.
  DType multiplied(const Slot& matrix, Phase phase) const {
    const bool dequantised =
        rounding(matrix, phase) == Rounding::kBF16 &&
        (is_k_quant(matrix.dtype) || (phase == Phase::kPrompt && is_quantised(matrix.dtype)));
    return dequantised ? DType::kBF16 : matrix.dtype;
  }

  // --- Steps
  // Runs step i over `rows`, which are all its rows.
  using Run = void (CpuExecutable::*)(size_t i, const RowBatch& batch, size_t rows);
  static const ByOp<Run> kRun;
  void run_group(size_t i, const RowBatch& batch, size_t rows);
  void run_matmul(size_t i, const RowBatch& batch, size_t rows);
  void run_attention(size_t i, const RowBatch& batch, size_t rows);
  void run_rotate(size_t i, const RowBatch& batch, size_t rows);
  void run_topk(size_t i, const RowBatch& batch, size_t rows);
  void run_head_part(size_t i, const RowBatch& batch, size_t rows);
  void run_conv_rows(size_t i, const RowBatch& batch, size_t rows);
  void run_delta(size_t i, const RowBatch& batch, size_t rows);

  // The attention whose keys and values the product of step i stores, or null. For generated rows,
  // each with a page of its own, nothing is gained.
  const Step* stores_for(size_t i, const RowBatch& batch) const {
    const bool stores = batch.phase == Phase::kPrompt && loaded_[i].stores_kv;
    return stores ? &program_.steps[*program_.steps[i].attention] : nullptr;
  }
  void round_rows(const CpuKernels::Steps& steps, const float* x, size_t rows, size_t inner);
  RowPages pages_of(const Step& attention, const RowBatch& batch) const;
  // The state of a row's sequence, of a step that keeps one.
  float* state_at(size_t row, int slot, const RowBatch& batch) const {
    return floats(slot) + batch.states[0][batch.sequences[row]] * place_of(slot).columns;
  }
  // The keys that each row sees in the attention's window.
  std::span<const KeyRange> windowed(const RowBatch& batch, const Heads& heads);
  void spread_bias(const Step& attention, const RowBatch& batch);
  void keep_rows(const Step& attention, const RowBatch& batch);
  void finish_and_keep(const RowPages& pages, const TapeRunner& tape, size_t row, size_t rows,
                       size_t first, size_t columns, const float* y, size_t stride,
                       float* scratch) const;

  const Slot& slot(int index) const { return program_.slots[static_cast<size_t>(index)]; }
  const SlotPlace& place_of(int slot) const { return places_[static_cast<size_t>(slot)]; }
  float* floats(int slot) const { return reinterpret_cast<float*>(place_of(slot).base); }
  static size_t first_column(const Operand& rows) { return static_cast<size_t>(rows.access.first); }
  // Row `row` of an input, which may be some columns of a slot.
  const float* row_of(const Operand& rows, size_t row) const {
    return floats(rows.slot) + row * place_of(rows.slot).columns + first_column(rows);
  }

  // A step's data that loading made.
  struct Loaded {
    const std::byte* matrix = nullptr;  // a matmul's
    bool stores_kv = false;
    std::vector<float> prepared;
  };
  // The bias of each head by distance of a key behind its row: `at` values before 0, `stride` in
  // all.
  struct Bias {
    std::vector<float> values;
    size_t at = 0, stride = 0;
  };

  Program program_;
  CpuWorkspace& workspace_;
  const CpuKernels& kernels_;
  ThreadPool& pool_;
  std::vector<SlotPlace> places_;
  std::vector<CpuBuffer*> outputs_;   // by slot; null: not an output
  std::vector<bool> is_read_;         // by slot: some step reads it
  std::vector<RoundedSlot> rounded_;  // by slot
  std::vector<TapeRunner> tapes_;
  std::vector<Loaded> loaded_;      // by step
  RowRuns runs_;                    // the present step's
  std::vector<KeyRange> windowed_;  // the present attention's
  Bias bias_;                       // the present attention's
};

}  // namespace split
