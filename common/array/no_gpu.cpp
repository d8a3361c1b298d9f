// Stands for the executors of GPUs where none is built.
#include "array/executor.h"
#include "base/error.h"
#include "device/device.h"

namespace split::array {

std::unique_ptr<Executor> make_gpu_executor(const Device& gpu, const Schedule&, Leaves) {
  throw Error(ErrorKind::kDevice, cat("[array] expected the CPU, got ", gpu.name()));
}

}  // namespace split::array
