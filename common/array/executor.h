// Runs a schedule on a device. For plan.cpp alone.
#pragma once

#include <memory>
#include <span>

#include "array/layout.h"
#include "array/store.h"
#include "device/cpu/kernels/kernels.h"

namespace split {
class Device;
class ThreadPool;
}  // namespace split

namespace split::array {

class Executor {
 public:
  virtual ~Executor() = default;
  // Throws Error(kInput) for an index that is outside of its table.
  virtual void run() = 0;
  // Returns what the last run left in a buffer.
  virtual std::span<const std::byte> bytes(size_t buffer) = 0;
  virtual size_t arena_bytes() const = 0;
};

// Leaves are by buffer, null for temporaries; they and the schedule outlive it.
using Leaves = std::span<Store::Entry* const>;
std::unique_ptr<Executor> make_cpu_executor(const CpuKernels& kernels, ThreadPool& pool,
                                            const Schedule& schedule, Leaves leaves);
size_t cpu_workspace(const Kernel& kernel);
inline size_t gpu_workspace(const Kernel&) { return 0; }
// Throws Error(kDevice) for a device that runs Programs alone.
std::unique_ptr<Executor> make_gpu_executor(const Device& gpu, const Schedule& schedule,
                                            Leaves leaves);

}  // namespace split::array
