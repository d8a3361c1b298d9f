// A graph made ready for a device and run again and again: kernels in order, one arena, nothing
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
#include "device/device.h"

namespace split {
class Value;
class Numbers;
}  // namespace split

namespace split::array {

class Executor;
class Session;

// A device: threads with the kernels of the best instruction set (or of SPLIT_CPU_ISA), or a GPU.
// One plan runs at a time.
class Runtime {
 public:
  explicit Runtime(unsigned threads);  // the CPU
  // Throws Error(kDevice) as make_device() does.
  explicit Runtime(const DeviceOptions& options);
  const CpuKernels& kernels;
  ThreadPool pool;
  const std::shared_ptr<Device> gpu;  // null: the CPU
  // "cpu", or the GPU's name and driver.
  std::string name() const;
  // Bytes of a GPU's own memory; 0 where that is the machine's.
  uint64_t own_memory() const;

  // --- Tensors as values (array/value.h)
  explicit Runtime(std::string_view device);  // "cpu", "vulkan:0"
  ~Runtime();
  Value tensor(const Numbers& numbers, DType dtype = DType::kF32);
  Value tensor(const TensorView& view);
  Value full(const Dims& dims, double value, DType dtype = DType::kF32);
  Value zeros(const Dims& dims, DType dtype = DType::kF32);
  Value ones(const Dims& dims, DType dtype = DType::kF32);
  Value empty(const Dims& dims, DType dtype = DType::kF32);
  Value arange(double start, double end, double step = 1, DType dtype = DType::kF32);
  // Philox-4x32-10: the same numbers on every device.
  void manual_seed(uint32_t seed);
  Value rand(const Dims& dims);
  Value randn(const Dims& dims);
  Value randint(int64_t low, int64_t high, const Dims& dims);
  Value randperm(int64_t n);
  Value bernoulli(const Tensor& p);
  Session& session();

 private:
  std::shared_ptr<Session> session_;
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
  // A result of the last run: its numbers, in floats for F32 and halves; or with its own type.
  std::span<const float> output(std::string_view name) const;
  OwnedTensor tensor(std::string_view name) const;
  std::span<const std::byte> bytes(std::string_view name) const;  // as they are computed with
  const Dims& dims(std::string_view name) const;
  DType dtype(std::string_view name) const;
  // Bytes beside the store's, for what is between the kernels; also of a graph that is not planned
  // yet.
  static uint64_t bytes_of(const Runtime& runtime, const Graph& graph);
  size_t arena_bytes() const;
  std::string text() const { return text_of(schedule_); }

 private:
  std::vector<Store::Entry*> leaves_in(Store& store) const;
  const Schedule::Output& result(std::string_view name) const;

  const Schedule schedule_;
  const std::unique_ptr<Executor> executor_;
};

}  // namespace split::array
