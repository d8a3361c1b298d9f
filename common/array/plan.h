// A graph made ready for the CPU and run again and again: kernels in order, one arena, nothing
// allocated by a run. One thread at a time; a run uses the threads of its Runtime.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "array/schedule.h"
#include "array/store.h"
#include "base/resources/thread_pool.h"
#include "device/cpu/kernels/kernels.h"

namespace split::array {

class TapeLoops;

// Threads, and the kernels of the best instruction set (or of SPLIT_CPU_ISA). One plan runs at a
// time.
class Runtime {
 public:
  explicit Runtime(unsigned threads);
  const CpuKernels& kernels;
  ThreadPool pool;
};

class Plan {
 public:
  // Leaves are looked up in `store` by their names, which outlives the plan. Throws Error(kShape)
  // for leaves that are not there or of another shape, and for an update of what is no state.
  Plan(Runtime& runtime, const Graph& graph, Store& store, bool fuse = true);
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Throws Error(kInput) for an index that is outside of its table.
  void run();
  // A result of the last run.
  std::span<const float> output(std::string_view name) const;
  const Dims& dims(std::string_view name) const;
  // Bytes beside the store's, for what is between the kernels; also of a graph that is not planned
  // yet.
  static uint64_t bytes_of(const Graph& graph);
  size_t arena_bytes() const { return arena_.size() * sizeof(float); }
  std::string text() const { return text_of(schedule_); }

 private:
  struct Place {
    float* floats = nullptr;
    const int32_t* numbers = nullptr;
  };
  struct Product;
  struct Layout;

  void bind(Store& store);
  void place_temporaries();
  std::span<float> scratch(size_t floats);
  const Schedule::Output& result(std::string_view name) const;
  void run_tape(size_t i);
  void run_product(size_t i);
  void run_rows(size_t i);

  Runtime& runtime_;
  Schedule schedule_;
  std::vector<Place> places_;       // of buffers
  std::vector<TapeLoops> tapes_;    // of kernels
  std::vector<size_t> workspaces_;  // of kernels, where they begin in the arena
  std::vector<float> arena_;
};

}  // namespace split::array
