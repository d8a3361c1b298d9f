#include "array/plan.h"

#include <algorithm>
#include <cstdlib>

#include "array/executor.h"
#include "base/error.h"
#include "base/log.h"

namespace split::array {

namespace {

const CpuKernels& own_kernels() {
  const char* const limit = std::getenv("SPLIT_CPU_ISA");  // as the device has it
  return choose_kernels(limit == nullptr ? "" : limit);
}

std::shared_ptr<Device> gpu_of(const DeviceOptions& options) {
  if (options.device == "cpu") return nullptr;
  std::shared_ptr<Device> device = make_device(options);
  return device->can_be_lost() ? device : nullptr;
}

std::unique_ptr<Executor> make_executor(Runtime& runtime, const Schedule& schedule, Leaves leaves) {
  return runtime.gpu != nullptr
             ? make_gpu_executor(*runtime.gpu, schedule, leaves)
             : make_cpu_executor(runtime.kernels, runtime.pool, schedule, leaves);
}

}  // namespace

Runtime::Runtime(unsigned threads) : kernels(own_kernels()), pool(threads) {}
Runtime::Runtime(const DeviceOptions& options)
    : kernels(own_kernels()), pool(options.threads), gpu(gpu_of(options)) {}

Runtime::Runtime(std::string_view device) : Runtime(DeviceOptions{.device = std::string(device)}) {}
Runtime::~Runtime() = default;

std::string Runtime::name() const { return gpu == nullptr ? "cpu" : gpu->name(); }
uint64_t Runtime::own_memory() const { return gpu == nullptr ? 0 : gpu->own_memory(); }

Plan::Plan(Runtime& runtime, const Graph& graph, Store& store, bool fuse)
    : schedule_(schedule(graph, fuse)),
      executor_(make_executor(runtime, schedule_, leaves_in(store))) {
  if (debug_level() >= 2) write_log(text());
}
Plan::~Plan() = default;

std::vector<Store::Entry*> Plan::leaves_in(Store& store) const {
  std::vector<Store::Entry*> leaves(schedule_.buffers.size());
  for (size_t i = 0; i < leaves.size(); ++i) {
    const BufferSpec& spec = schedule_.buffers[i];
    if (!spec.leaf()) continue;
    Store::Entry* const entry = store.find(spec.name);
    const bool written = std::ranges::count(schedule_.written, static_cast<int>(i)) > 0;
    if (entry == nullptr || entry->dims != spec.dims || entry->dtype != spec.dtype) {
      throw Error(
          ErrorKind::kShape,
          cat("[array] '", spec.name, "': expected ", dtype_name(spec.dtype), " ",
              to_string(spec.dims), ", got ",
              entry == nullptr ? "none"
                               : cat(dtype_name(entry->dtype), " ", to_string(entry->dims))));
    }
    if (written && !entry->state) {
      throw Error(ErrorKind::kShape,
                  cat("[array] '", spec.name, "' is written by a step, but is none of its state"));
    }
    leaves[i] = entry;
  }
  return leaves;
}

uint64_t Plan::bytes_of(const Runtime& runtime, const Graph& graph) {
  const auto workspace = runtime.gpu == nullptr ? cpu_workspace : gpu_workspace;
  return Layout(schedule(graph), workspace).floats * sizeof(float);
}

void Plan::run() { executor_->run(); }
size_t Plan::arena_bytes() const { return executor_->arena_bytes(); }

const Schedule::Output& Plan::result(std::string_view name) const {
  for (const Schedule::Output& output : schedule_.outputs) {
    if (output.name == name) return output;
  }
  throw Error(ErrorKind::kNotFound, cat("[array] no result '", name, "'"));
}
std::span<const float> Plan::output(std::string_view name) const {
  CHECK(is_floating(dtype(name)));
  const auto bytes = executor_->bytes(static_cast<size_t>(result(name).buffer));
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}
std::span<const std::byte> Plan::bytes(std::string_view name) const {
  return executor_->bytes(static_cast<size_t>(result(name).buffer));
}
OwnedTensor Plan::tensor(std::string_view name) const {
  return narrowed_numbers(executor_->bytes(static_cast<size_t>(result(name).buffer)), dtype(name),
                          dims(name));
}
const Dims& Plan::dims(std::string_view name) const { return result(name).dims; }
DType Plan::dtype(std::string_view name) const {
  return schedule_.buffers[static_cast<size_t>(result(name).buffer)].dtype;
}

}  // namespace split::array
