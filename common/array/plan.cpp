#include "array/plan.h"

#include <algorithm>
#include <cstdlib>

#include "array/executor.h"
#include "base/error.h"
#include "base/log.h"

namespace split::array {

Runtime::Runtime(unsigned threads)
    : kernels(choose_kernels([] {
        const char* const limit = std::getenv("SPLIT_CPU_ISA");  // as the device has it
        return std::string_view(limit == nullptr ? "" : limit);
      }())),
      pool(threads) {}

Plan::Plan(Runtime& runtime, const Graph& graph, Store& store, bool fuse)
    : schedule_(schedule(graph, fuse)),
      executor_(make_cpu_executor(runtime.kernels, runtime.pool, schedule_, leaves_in(store))) {
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

uint64_t Plan::bytes_of(const Graph& graph) {
  return Layout(schedule(graph), cpu_workspace).floats * sizeof(float);
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
  return executor_->floats(static_cast<size_t>(result(name).buffer));
}
const Dims& Plan::dims(std::string_view name) const { return result(name).dims; }

}  // namespace split::array
